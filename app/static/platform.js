// @ts-check
/** Which system the browser runs on, where keys or input events differ. */

export const MAC = /Mac|iPhone|iPad/.test(navigator.platform);
export const ANDROID = /Android/.test(navigator.userAgent);
