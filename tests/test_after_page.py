"""The page sends the text after the caret with its requests."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.fake_drafts import FakeDrafts, Server, create_app
from tests.test_page import Editor

pytestmark = pytest.mark.browser
