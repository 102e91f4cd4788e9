"""Keys of the clouds' providers that a stack's config may set.

A provider reads its own namespace of the config, and a preview starts it with the operator's credentials. A line such
as `aws:endpoints` in a pull request could send them, or a file named by `aws:assumeRoleWithWebIdentity`, to any host.
The same settings in the environment are the operator's own.
"""

from collections.abc import Iterable

from components.settings.problems import Report, shown
from components.settings.types import word_set

# The keys that choose among credentials of the operator's machine and the cloud's own endpoints.
_HARMLESS_OF_AWS = word_set(
    "accessKey allowedAccountIds assumeRoles defaultTags forbiddenAccountIds ignoreTags maxRetries profile region "
    "retryMode secretKey skipCredentialsValidation skipMetadataApiCheck skipRegionValidation "
    "skipRequestingAccountId token tokenBucketRateLimiterCapacity useDualstackEndpoint useFipsEndpoint"
)


def check_provider_keys(keys: Iterable[str], report: Report) -> None:
    """Report keys of providers that set the target of requests, or files to read."""
    for key in keys:
        if key.startswith("aws:") and key.removeprefix("aws:") not in _HARMLESS_OF_AWS:
            problem = "is a key of the AWS provider that a stack's config may not set"
            breaks = "a preview could send credentials or a file of this machine to another host"
            fix = "remove it, and set it in the environment (AWS_ENDPOINT_URL, AWS_CONFIG_FILE, HTTPS_PROXY)"
            report.add(shown(key), problem, breaks, fix)
