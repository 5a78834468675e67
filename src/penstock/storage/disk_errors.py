"""Kinds of disk errors: errors that may be temporary, and errors that mean that the disk is full."""

from __future__ import annotations

import errno

NO_SPACE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
PASSING_ERRORS = NO_SPACE_ERRORS | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors after which a write can be tried again. After any other error the disk is not trusted."""
