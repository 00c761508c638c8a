"""Errors that a user can mend."""

from policies.core import PolicyError
from workloads.core.errors import WorkloadError


class UserError(Exception):
    """One clear line for the user that names the thing and the remedy; the command line exits with 2."""


class NotMet(Exception):
    """A condition that the user set for success was not met; the command line exits with 1."""


class RunFailed(Exception):
    """A run that ended `failed`; its directory says why; the command line exits with 3."""


class Interrupted(Exception):
    """The user stopped it; the line says what was kept, if anything; the command line exits with 130."""


USER_ERRORS = (UserError, WorkloadError, PolicyError)
