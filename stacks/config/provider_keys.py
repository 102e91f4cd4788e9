"""Keys of the AWS provider in a stack's config: those that cannot send credentials elsewhere or read a file.

The provider reads its own namespace of the config, and a preview starts it with the credentials of whoever runs it. A
line such as `aws:endpoints` in a pull request would send them, or a file that `aws:assumeRoleWithWebIdentity` names, to
any host. The same settings in the environment are the operator's own.
"""

from collections.abc import Iterable

from components.settings.problems import Report, shown
from components.settings.types import words

_NAMESPACE = "aws:"
# Keys that choose among what the operator's machine and AWS's own endpoints offer.
_HARMLESS = words(
    "accessKey allowedAccountIds assumeRoles defaultTags forbiddenAccountIds ignoreTags maxRetries profile region "
    "retryMode secretKey skipCredentialsValidation skipMetadataApiCheck skipRegionValidation skipRequestingAccountId "
    "token tokenBucketRateLimiterCapacity useDualstackEndpoint useFipsEndpoint"
)


def check_provider_keys(keys: Iterable[str], report: Report) -> None:
    """Report keys of the AWS provider that say where it sends requests, or which files it reads."""
    for key in keys:
        if key.startswith(_NAMESPACE) and key.removeprefix(_NAMESPACE) not in _HARMLESS:
            what = "is not among the AWS provider's keys that a stack's config may set"
            breaks = "a preview could send credentials or a file of this machine to another host"
            fix = "take it out, and set it in the environment (AWS_ENDPOINT_URL, AWS_CONFIG_FILE, HTTPS_PROXY)"
            report.add(shown(key), what, breaks, fix)
