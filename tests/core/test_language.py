"""A text in another language than the model's has no drafts that nobody has requested."""

from __future__ import annotations

import pytest

from core.language import LEAST, OtherLanguage, shares
from core.session import Session
from tests.completing import complete

LETTERS = {
    "German": "Sehr geehrte Damen und Herren, ich schreibe Ihnen, weil die Heizung seit Tagen nicht geht",
    "French": "Chère Anna, merci beaucoup pour ta lettre, je suis contente de te lire",
    "Spanish": "Querida Ana, gracias por tu carta de ayer, me alegra mucho que vengas",
    "Dutch": "Beste Anna, bedankt voor je brief van gisteren, ik ben er blij mee",
    "Swedish": "Kära Anna, tack för ditt brev som kom i går, det gjorde mig glad",
    "Russian": "Дорогая Анна, спасибо за письмо, которое я получила вчера",
    "Japanese": "今日はとても天気がいいので、公園に行きます。そして、友達と一緒に昼ご飯を食べました。",
}
ENGLISH = (
    "Dear Anna, thank you for your letter of yesterday. I was glad to hear that you are coming.",
    "Meeting notes, 14 May\n\n- budget: Anna\n- roof repair, two offers\n- next meeting in June\n",
    "x = np.zeros((3, 4)); y = x.sum(axis=0); z = y.mean(); result = f(x, y, z)",
    "| 1990 | 12.5 | 33 |\n| 1991 | 13.1 | 35 |\n| 1992 | 14.8 | 31 |\n",
    "Charlie Parker, Dizzy Gillespie, Thelonious Monk, Max Roach, Miles Davis",
)


@pytest.fixture(scope="module")
def is_other() -> OtherLanguage:
    found = OtherLanguage(["en"])
    assert not found(LETTERS["German"]), "not known yet"
    found.wait()
    return found


@pytest.mark.parametrize("language", LETTERS)
def test_a_letter_in_another_language_is_known_from_forty_characters_on(is_other: OtherLanguage, language: str) -> None:
    text = LETTERS[language]
    assert is_other(text)
    assert not is_other(text[: LEAST - 1])


@pytest.mark.parametrize("text", ENGLISH)
def test_english_code_and_names_are_not_another_language(is_other: OtherLanguage, text: str) -> None:
    assert not any(is_other(text[:n]) for n in range(len(text)))


def test_a_model_that_states_no_language_or_that_of_the_text_writes_it() -> None:
    for languages in ((), ("en", "de")):
        found = OtherLanguage(languages)
        found(LETTERS["German"])
        found.wait()
        assert not found(LETTERS["German"])


def test_english_text_never_loads_what_ranks_languages() -> None:
    found = OtherLanguage(["en"], load=lambda: pytest.fail("loaded"))
    assert not found(ENGLISH[0])
    assert found._loading is None


def test_the_default_model_states_english_and_drafts_in_other_texts_only_on_request(session: Session) -> None:
    a = session.equipped
    assert a.model.languages == ("en",)
    a.in_other_language(LETTERS["German"])
    a.in_other_language.wait()
    unasked = complete(session, LETTERS["German"], unasked=True)
    assert (unasked.done, unasked.foreign, unasked.drafts, unasked.fed) == (True, True, [], 0)
    assert complete(session, LETTERS["German"], k=1, length=2).finish().drafts
    assert complete(session, ENGLISH[0], unasked=True, length=4).finish().drafts


def test_the_languages_of_texts_have_shares_of_their_characters() -> None:
    german, english = LETTERS["German"], ENGLISH[0]
    found = shares([english, german, "Zu kurz.", ENGLISH[3]])
    assert found == pytest.approx(
        {"en": len(english) / len(english + german), "de": len(german) / len(english + german)}
    )
