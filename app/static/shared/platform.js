// @ts-check
/** The operating system, where its keys or input events differ. */

export const MAC = /Mac|iPhone|iPad/.test(navigator.platform);
export const ANDROID = /Android/.test(navigator.userAgent);
