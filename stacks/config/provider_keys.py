"""Keys of the clouds' providers that a stack's config may set.

A provider reads its own namespace of the config, and a preview starts it with the operator's credentials. A line such
as `aws:endpoints` in a pull request could send them, or a file named by `aws:assumeRoleWithWebIdentity`, to any host.
The same settings in the environment are the operator's own.
"""

from collections.abc import Iterable

from components.settings.problems import Report, shown
from components.settings.types import word_set

# By namespace: the keys that choose among credentials of the operator's machine and the cloud's own endpoints, and the
# remedy for others.
_HARMLESS = {
    "aws": word_set(
        "accessKey allowedAccountIds assumeRoles defaultTags forbiddenAccountIds ignoreTags maxRetries profile region "
        "retryMode secretKey skipCredentialsValidation skipMetadataApiCheck skipRegionValidation "
        "skipRequestingAccountId token tokenBucketRateLimiterCapacity useDualstackEndpoint useFipsEndpoint"
    ),
    "gcp": word_set(
        "accessToken addPulumiAttributionLabel billingProject defaultLabels disableGlobalProjectWarning project region "
        "requestReason requestTimeout scopes skipRegionValidation userProjectOverride zone"
    ),
    "nebius": word_set("defaultLabels parentId profile retries timeout token"),
}
_CLOUDS = {"aws": "AWS", "gcp": "Google", "nebius": "Nebius"}
_VARIABLES = {
    "aws": "AWS_ENDPOINT_URL, AWS_CONFIG_FILE, HTTPS_PROXY",
    "gcp": "GOOGLE_APPLICATION_CREDENTIALS, HTTPS_PROXY",
    "nebius": "NEBIUS_PROFILE, HTTPS_PROXY",
}


def check_provider_keys(keys: Iterable[str], report: Report) -> None:
    """Report keys of providers that set the target of requests, or files to read."""
    for key in keys:
        namespace, _, name = key.partition(":")
        if namespace in _HARMLESS and name not in _HARMLESS[namespace]:
            problem = f"is a key of the {_CLOUDS[namespace]} provider that a stack's config may not set"
            breaks = "a preview could send credentials or a file of this machine to another host"
            fix = f"remove it, and set it in the environment ({_VARIABLES[namespace]})"
            report.add(shown(key), problem, breaks, fix)
