// @ts-check
/** Which fields of a page have drafts: those in which prose is written. */

/** @typedef {HTMLTextAreaElement | HTMLInputElement} PlainField */
/** @typedef {HTMLElement} Field a plain field, or the element that is edited */

/**
 * What fields are called that hold no prose, in whole words as `words` writes them: English, German, French, Spanish,
 * Portuguese, Italian. A field called so is never one for prose.
 */
const SECRET = wordsOf(
  // passwords, and codes that are sent or shown once
  "pass ?(words?|wd|codes?|phrases?|keys?)|pwd|pin( ?code)?|t?otp|[2m]fa|two factor|captcha|m?tan",
  "(one ?time|verification|security|authenticat(ion|or)|auth|access|backup|recovery|confirmation|login|sms|reset|unlock|invite) (codes?|keys?|tokens?|pin)",
  "codes? (from|in|by|aus|par|por|da|dal) .*(sms|e ?mail|messages?|nachricht|app|phone|telefon)",
  "(pass|kenn|losungs)w[oö]rt(er)?|(einmal|zugangs|bestatigungs|sicherheits|freischalt|aktivierungs|verifizierungs) ?(code|pin|passwort|kennwort)",
  "mots? de passe|contrasenas?|senhas?|palavra passe|parola d ordine",
  "codes? (pin|secret|unique|sms|a usage unique|d acces|d authentification|de (verification|securite|confirmation|recuperation|connexion))",
  "(codigo|codice) (pin|otp|sms|monouso|secreto|segreto|unico|fiscale|d[ei] (un solo uso|uso unico|verifica\\p{L}*|seguridad|seguranca|sicurezza|confirma\\p{L}*|conferma|ac?ces\\p{L}*|recuper\\p{L}*))",
  // words from which a wallet can be restored
  "mnemoni(cs?|que|co|ca)|srp|(seed|recovery|secret|backup) (recovery )?(phrases?|words?|sentence)|seed ?phrase",
  "wiederherstellungs ?(phrase|satz|wort|worter|schlussel|code)|geheim ?(phrase|satz|worter|schlussel|zahl|nummer)|merksatz",
  "phrases? (secrete|mnemonique|seed|de (recuperation|passe|recuperacion))|mots? (secrets?|de recuperation)",
  "frases? (semilla|semente|seme|seed|senha|secreta|segreta|d[ei] (recupera\\p{L}*|recupero|seguranca|seguridad|semilla))",
  "pal(abra|avra)s? (semilla|semente|secretas?|de recupera\\p{L}*)|parole? (seme|segret[ae]|di recupero)",
  // keys and tokens
  "(private|secret|api|access|ssh|pgp|gpg|public|encryption|licen[cs]e|product|activation|signing|wallet|master|client|session|bearer|refresh|webhook) (keys?|tokens?|secrets?|ids?)",
  "(privater?|geheimer?|offentlicher?|api|ssh|lizenz|zugriffs|sicherheits) ?schlussel|cles? (privee|secrete|publique|ssh|api|d api|d acces|de (licence|securite))",
  "(clave|chave|chiave) (privad?[ao]|privata|secreta|segreta|pu\\p{L}*|api|ssh|pix|d[ei] (ac?ces\\p{L}*|licen\\p{L}*))",
  // payments, and numbers of people and things
  "(credit|debit) ?card|card ?(number|holder|name|no)|cc ?(num(ber)?|name|exp|csc)|cv[vc]2?|csc|iban|bic|swift|sort code|routing( number)?",
  "kredit ?karten?\\p{L}*|karten ?(nummer|inhaber)|prufziffer|bankleitzahl|carte (bancaire|de credit)|cryptogramme|(tarjeta|cartao|carta) d[ei] (credito|debito)",
  "ssn|social security|tax id|steuer ?(nummer|id)|cpf|cnpj|dni|nif|(passport|account|customer|order|tracking|serial|invoice|member) (numbers?|no|ids?)|\\p{L}+nummer",
  "(user|client|customer|account|order|transaction|device|national|tax) ids?|numero (\\p{L}+ ){1,2}(carte|tarjeta|cartao|carta|compte|cuenta|conta|conto|securite|seguridad|pass?a?e?port\\p{L}*|commande|pedido|client\\p{L}*)",
);
const SEARCH = "search|suchen?|rechercher|buscar|pesquisar|procurar|cerca";
/** In a field of one line these are no prose; a larger field may be about them. */
const SHORT = wordsOf(
  SEARCH, "query|suchbegriffe?|recherche|busqueda|busca|pesquisa|ricerca|user ?names?|log ?in|benutzername|nutzername|utilisateur|usuario|utente",
  "codes?|codigos?|codic[ei]|keys?|tokens?|ids?|secrets?|schlussel|cles?|claves?|chaves?|chiavi?e?|seeds?|jetons?|urls?|numbers?|numeros?|phone|tele?[fp]h?one?o?|plz|zip",
  "((word|wort|mot|palabra|palavra|parola) )?\\d{1,2}$",
);
const MAIL = wordsOf("e ?mails?|mail|courriel|correo");
const SEARCHES = new RegExp(`^(${SEARCH})(?!\\p{L})`, "u");
/** What is written, and asked for, in prose. "Email body" is no address. */
const PROSE = wordsOf(
  "body|texts?|messages?|subject|description|describe|report|story|letter|comments?|notes?|summary|essay|answer|reply|article|content|title|topic|draft|signature",
  "nachricht|betreff|beschreib\\p{L}*|bericht|geschichte|brief|kommentar|notiz(en)?|zusammenfassung|antwort|inhalt|titel|thema",
  "corps|texte|objet|decri\\p{L}*|rapport|histoire|lettre|commentaire|resume|reponse|contenu|sujet",
  "cuerpo|corpo|texto|testo|mensaje|mensagem|messaggio|asunto|assunto|oggetto|descr[ei]\\p{L}*|informe|relatorio|rapporto|carta|lettera|coment\\p{L}*|comment[oi]|notas?|respuesta|resposta|risposta",
);
const FEW = 4; // words of a name that says what a larger field is for, and asks for nothing
const LEAST = 20; // characters that fit into a field for prose
/** Of the autocomplete attribute, https://html.spec.whatwg.org/#autofill: what a browser fills in. */
const FILLED = /\b(cc-[\w-]+|[\w-]*password|one-time-code|username|email|tel[\w-]*|transaction-[\w-]+|bday[\w-]*)\b/;
const SMALLEST = { width: 40, height: 12 }; // pixels; smaller ones are helpers of editors that draw their text themselves

/** @param {Element} element @returns {element is PlainField} */
function isPlain(element) {
  return element instanceof HTMLTextAreaElement || element instanceof HTMLInputElement;
}

/** The element with the keyboard's focus, also inside open shadow roots. */
function focused() {
  let found = document.activeElement;
  while (found?.shadowRoot?.activeElement) found = found.shadowRoot.activeElement;
  return found;
}

/**
 * The field that an element with the focus belongs to, if drafts may be shown there; else null.
 * @param {Element | null} element
 * @returns {Field | null}
 */
function fieldOf(element) {
  if (!(element instanceof HTMLElement)) return null;
  if (isPlain(element)) {
    if (element.readOnly || element.disabled) return null;
    if (element instanceof HTMLInputElement && element.type !== "text") return null;
    return isForProse(element) ? element : null;
  }
  if (!element.isContentEditable) return null;
  let root = element;
  while (root.parentElement?.isContentEditable) root = root.parentElement;
  return isForProse(root) ? root : null;
}

/** @param {HTMLElement} field */
function isForProse(field) {
  const role = field.getAttribute("role") ?? "textbox";
  if (role !== "textbox" || field.closest('search, [role="search"], [aria-readonly="true"]')) return false;
  if (FILLED.test(field.getAttribute("autocomplete") ?? "")) return false;
  if (/^(numeric|decimal|tel|email|url|search)$/.test(field.inputMode)) return false;
  if (!isCalledProse(field)) return false;
  if (isPlain(field) && field.maxLength >= 0 && field.maxLength < LEAST) return false;
  if (field instanceof HTMLInputElement && field.pattern) return false;
  if (isPlain(field) && field.form?.querySelector('input[type="password"], [autocomplete^="cc-"]')) return false;
  const { width, height } = field.getBoundingClientRect();
  if (width < SMALLEST.width || height < SMALLEST.height) return false;
  const style = /** @type {any} */ (getComputedStyle(field));
  return style.opacity !== "0" && (style.webkitTextSecurity ?? "none") === "none";
}

/** Whether the names that a page gives to a field say nothing against prose. @param {HTMLElement} field */
function isCalledProse(field) {
  const attributes = (/** @type {string[]} */ names) => names.map((name) => field.getAttribute(name));
  const root = /** @type {Document | ShadowRoot} */ (field.getRootNode());
  const ids = (field.getAttribute("aria-labelledby") ?? "").split(/\s+/).filter(Boolean);
  const labels = [...ids.map((id) => root.getElementById(id)), ...(isPlain(field) ? field.labels ?? [] : [])];
  const read = labels.map((label) => label?.textContent?.replace(field.textContent || "\0", "")); // not what is in the field
  const said = [...attributes(["aria-label", "placeholder", "title"]), ...read].map(words);
  const called = [...said, ...attributes(["name", "id"]).map(words)];
  if (called.some((name) => SECRET.test(name))) return false;
  if (field instanceof HTMLInputElement) {
    return !called.some((name) => SHORT.test(name) || (MAIL.test(name) && !PROSE.test(name)));
  }
  const isShort = (/** @type {string} */ name) => name.split(" ").length <= FEW && !PROSE.test(name);
  return !said.some((name) => SEARCHES.test(name) || ((SHORT.test(name) || MAIL.test(name)) && isShort(name)));
}

/**
 * A name in small letters without accents: "apiKey", "API-Key" and "api_key" are "api key".
 * @param {string | null | undefined} name
 */
function words(name) {
  const apart = (name ?? "").slice(0, 300).replace(/(?<=[\p{Ll}\d])(?=\p{Lu})/gu, " ").normalize("NFD").replace(/\p{M}/gu, "");
  return apart.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, " ").trim();
}

/** Whole words that match one of these. @param {...string} patterns */
function wordsOf(...patterns) {
  return new RegExp(`(?<!\\p{L})(${patterns.join("|")})(?!\\p{L})`, "u");
}

/** Whether the page shows a list of its own at this field, which needs Tab and the arrow keys. @param {Field} field */
function hasOwnList(field) {
  return field.getAttribute("aria-expanded") === "true" || field.hasAttribute("aria-activedescendant");
}
