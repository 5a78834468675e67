"""Kinds of disk errors: which of them may pass, and which mean that the disk is full."""

from __future__ import annotations

import errno

NO_SPACE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
PASSING_ERRORS = NO_SPACE_ERRORS | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors after which a write can be tried again. After any other the disk is not trusted."""
