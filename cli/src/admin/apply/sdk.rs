//! One bucket brought to its state: look, compare by meaning, and change what differs.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, timeout::TimeoutConfig};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpRequest;
use aws_sdk_s3::config::{Builder, RequestChecksumCalculation, ResponseChecksumValidation};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::types as s3;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use serde_json::Value;

use super::http::OneStack;
use crate::admin::lifecycle::Rule;
use crate::admin::state::{Wanted, same_policy, same_rules};

/// A setting is small, and a person waits.
const ATTEMPT_TIME: Duration = Duration::from_secs(10);

/// The one region whose buckets S3 makes without being told where.
const UNNAMED_REGION: &str = "us-east-1";

/// A bucket could not be brought to its state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ApplyError {
    /// The server refused, or failed. What was asked, and the error's code.
    #[error("asked to {0}, the server answered {1}")]
    Answered(&'static str, String),
    /// There was no answer.
    #[error("asked to {0}, the server gave no answer: {1}")]
    Silent(&'static str, String),
    /// A document that S3's rules do not allow.
    #[error("{0} cannot be written as S3 wants it")]
    Form(&'static str),
}

type Say<'a> = &'a mut dyn FnMut(&'static str, &'static str);

/// Brings one bucket to its state and says of each setting what became of it.
pub(super) async fn bring(wanted: &Wanted, dry_run: bool, say: Say<'_>) -> Result<(), ApplyError> {
    let client = client(wanted).await;
    let bucket = Bucket { client, wanted, dry_run };
    if !bucket.create(say).await? {
        // Nothing can be asked of a bucket that is not there.
        let missing = bucket.settings().into_iter().map(|(setting, _)| setting);
        missing.for_each(|setting| say(setting, "missing"));
        return Ok(());
    }
    // Blocked before there is a policy that could be taken for a public one.
    for (setting, is_wanted) in bucket.settings() {
        if is_wanted {
            bucket.settle(setting, say).await?;
        }
    }
    Ok(())
}

struct Bucket<'a> {
    client: Client,
    wanted: &'a Wanted,
    dry_run: bool,
}

const VERSIONING: &str = "versioning";
const LIFECYCLE: &str = "lifecycle";
const PUBLIC_ACCESS: &str = "public-access-block";
const OWNERSHIP: &str = "ownership";
const ENCRYPTION: &str = "encryption";
const POLICY: &str = "policy";

impl Bucket<'_> {
    fn settings(&self) -> Vec<(&'static str, bool)> {
        let all = [
            (PUBLIC_ACCESS, self.wanted.guarded),
            (OWNERSHIP, self.wanted.guarded),
            (ENCRYPTION, self.wanted.guarded),
            (VERSIONING, self.wanted.versioned),
            (LIFECYCLE, !self.wanted.lifecycle.is_empty()),
            (POLICY, self.wanted.policy.is_some()),
        ];
        all.into_iter().filter(|(_, is_wanted)| *is_wanted).collect()
    }

    async fn settle(&self, setting: &'static str, say: Say<'_>) -> Result<(), ApplyError> {
        let is_right = match setting {
            VERSIONING => self.has_versions().await?,
            LIFECYCLE => same_rules(&self.rules().await?, &self.wanted.lifecycle),
            PUBLIC_ACCESS => self.is_blocked().await?,
            OWNERSHIP => self.is_owned().await?,
            ENCRYPTION => self.is_encrypted().await?,
            _ => self.has_policy().await?,
        };
        if is_right {
            say(setting, "same");
            return Ok(());
        }
        if self.dry_run {
            say(setting, "missing");
            return Ok(());
        }
        match setting {
            VERSIONING => self.set_versions().await?,
            LIFECYCLE => self.set_rules().await?,
            PUBLIC_ACCESS => self.set_blocked().await?,
            OWNERSHIP => self.set_owned().await?,
            ENCRYPTION => self.set_encrypted().await?,
            _ => self.set_policy().await?,
        }
        say(setting, "made");
        Ok(())
    }

    fn name(&self) -> &str {
        &self.wanted.address.bucket
    }

    /// Whether the bucket is there now.
    async fn create(&self, say: Say<'_>) -> Result<bool, ApplyError> {
        let looked = self.client.head_bucket().bucket(self.name()).send().await;
        let there = found(looked, "look at the bucket", &["NotFound", "NoSuchBucket"])?.is_some();
        match (there, self.dry_run) {
            (true, _) => say("bucket", "same"),
            (false, true) => say("bucket", "missing"),
            (false, false) => {
                let made = self.client.create_bucket().bucket(self.name());
                let made = made.set_create_bucket_configuration(self.location()).send();
                done(made.await, "make the bucket")?;
                say("bucket", "made");
            }
        }
        Ok(there || !self.dry_run)
    }

    fn location(&self) -> Option<s3::CreateBucketConfiguration> {
        let (address, region) = (&self.wanted.address, self.wanted.address.region.as_str());
        let named = address.endpoint.is_none() && region != UNNAMED_REGION;
        named.then(|| {
            let constraint = s3::BucketLocationConstraint::from(region);
            s3::CreateBucketConfiguration::builder().location_constraint(constraint).build()
        })
    }

    async fn has_versions(&self) -> Result<bool, ApplyError> {
        let asked = self.client.get_bucket_versioning().bucket(self.name()).send();
        let found = done(asked.await, "read the versioning")?;
        Ok(found.status() == Some(&s3::BucketVersioningStatus::Enabled))
    }

    async fn set_versions(&self) -> Result<(), ApplyError> {
        let enabled = s3::BucketVersioningStatus::Enabled;
        let versions = s3::VersioningConfiguration::builder().status(enabled).build();
        let asked = self.client.put_bucket_versioning().bucket(self.name());
        let asked = asked.versioning_configuration(versions).customize().mutate_request(digested);
        done(asked.send().await, "set the versioning").map(drop)
    }

    async fn rules(&self) -> Result<Vec<Rule>, ApplyError> {
        let asked = self.client.get_bucket_lifecycle_configuration().bucket(self.name()).send();
        let absent = ["NoSuchLifecycleConfiguration"];
        let found = found(asked.await, "read the lifecycle", &absent)?;
        Ok(found.map(|found| found.rules().iter().map(rule_of).collect()).unwrap_or_default())
    }

    async fn set_rules(&self) -> Result<(), ApplyError> {
        let rules: Result<Vec<_>, _> = self.wanted.lifecycle.iter().map(rule_for).collect();
        let rules = rules.and_then(|rules| {
            s3::BucketLifecycleConfiguration::builder().set_rules(Some(rules)).build()
        });
        let rules = rules.map_err(|_| ApplyError::Form(LIFECYCLE))?;
        let asked = self.client.put_bucket_lifecycle_configuration().bucket(self.name());
        let asked = asked.lifecycle_configuration(rules).customize().mutate_request(digested);
        done(asked.send().await, "set the lifecycle").map(drop)
    }

    async fn is_blocked(&self) -> Result<bool, ApplyError> {
        let asked = self.client.get_public_access_block().bucket(self.name()).send();
        let absent = ["NoSuchPublicAccessBlockConfiguration"];
        let found = found(asked.await, "read the public access block", &absent)?;
        let found = found.and_then(|found| found.public_access_block_configuration);
        Ok(found == Some(blocked()))
    }

    async fn set_blocked(&self) -> Result<(), ApplyError> {
        let asked = self.client.put_public_access_block().bucket(self.name());
        let asked = asked.public_access_block_configuration(blocked());
        let asked = asked.customize().mutate_request(digested);
        done(asked.send().await, "block public access").map(drop)
    }

    async fn is_owned(&self) -> Result<bool, ApplyError> {
        let asked = self.client.get_bucket_ownership_controls().bucket(self.name()).send();
        let absent = ["OwnershipControlsNotFoundError"];
        let found = found(asked.await, "read the ownership", &absent)?;
        let found = found.and_then(|found| found.ownership_controls);
        let owned = |rule: &s3::OwnershipControlsRule| {
            rule.object_ownership == s3::ObjectOwnership::BucketOwnerEnforced
        };
        Ok(found.is_some_and(|found| found.rules.iter().all(owned) && !found.rules.is_empty()))
    }

    async fn set_owned(&self) -> Result<(), ApplyError> {
        let enforced = s3::ObjectOwnership::BucketOwnerEnforced;
        let rule = s3::OwnershipControlsRule::builder().object_ownership(enforced).build();
        let rule = rule.map_err(|_| ApplyError::Form(OWNERSHIP))?;
        let rules = s3::OwnershipControls::builder().rules(rule).build();
        let rules = rules.map_err(|_| ApplyError::Form(OWNERSHIP))?;
        let asked = self.client.put_bucket_ownership_controls().bucket(self.name());
        let asked = asked.ownership_controls(rules).customize().mutate_request(digested);
        done(asked.send().await, "set the ownership").map(drop)
    }

    /// Keys of a deployment's own are encryption too.
    async fn is_encrypted(&self) -> Result<bool, ApplyError> {
        let asked = self.client.get_bucket_encryption().bucket(self.name()).send();
        let absent = ["ServerSideEncryptionConfigurationNotFoundError"];
        let found = found(asked.await, "read the encryption", &absent)?;
        let found = found.and_then(|found| found.server_side_encryption_configuration);
        Ok(found.is_some_and(|found| {
            found.rules.iter().any(|rule| rule.apply_server_side_encryption_by_default.is_some())
        }))
    }

    async fn set_encrypted(&self) -> Result<(), ApplyError> {
        let form = |_| ApplyError::Form(ENCRYPTION);
        let aes = s3::ServerSideEncryption::Aes256;
        let usual = s3::ServerSideEncryptionByDefault::builder().sse_algorithm(aes).build();
        let rule = s3::ServerSideEncryptionRule::builder()
            .apply_server_side_encryption_by_default(usual.map_err(form)?)
            .build();
        let rules = s3::ServerSideEncryptionConfiguration::builder().rules(rule).build();
        let asked = self.client.put_bucket_encryption().bucket(self.name());
        let asked = asked.server_side_encryption_configuration(rules.map_err(form)?);
        let asked = asked.customize().mutate_request(digested);
        done(asked.send().await, "set the encryption").map(drop)
    }

    async fn has_policy(&self) -> Result<bool, ApplyError> {
        let asked = self.client.get_bucket_policy().bucket(self.name()).send();
        let found = found(asked.await, "read the policy", &["NoSuchBucketPolicy"])?;
        let found = found.and_then(|found| found.policy);
        let found: Option<Value> = found.and_then(|text| serde_json::from_str(&text).ok());
        let wanted = self.wanted.policy.as_ref();
        Ok(found.zip(wanted).is_some_and(|(found, wanted)| same_policy(&found, wanted)))
    }

    async fn set_policy(&self) -> Result<(), ApplyError> {
        let policy = self.wanted.policy.as_ref().map(Value::to_string);
        let asked = self.client.put_bucket_policy().bucket(self.name()).set_policy(policy);
        let asked = asked.customize().mutate_request(digested);
        done(asked.send().await, "set the policy").map(drop)
    }
}

async fn client(wanted: &Wanted) -> Client {
    let address = &wanted.address;
    let times = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIME).build();
    let loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(OneStack::default())
        .timeout_config(times)
        .region(Region::new(address.region.clone()));
    let config = loader.load().await;
    let mut config = Builder::from(&config)
        // Other servers do not know the checksums that the SDK adds by itself.
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .force_path_style(address.endpoint.is_some());
    if let Some(endpoint) = &address.endpoint {
        config = config.endpoint_url(endpoint);
    }
    Client::from_conf(config.build())
}

/// The digest that every S3 server asks for with a setting; the SDK sends a newer kind only, which
/// some servers do not know.
fn digested(request: &mut HttpRequest) {
    let Some(body) = request.body().bytes() else { return };
    let digest = STANDARD.encode(Md5::digest(body));
    request.headers_mut().insert("content-md5", digest);
}

fn done<T, E: ProvideErrorMetadata>(
    answer: Result<T, SdkError<E>>,
    act: &'static str,
) -> Result<T, ApplyError> {
    found(answer, act, &[])?.ok_or(ApplyError::Form(act))
}

/// The answer, or `None` where its error says that there is no such thing.
fn found<T, E: ProvideErrorMetadata>(
    answer: Result<T, SdkError<E>>,
    act: &'static str,
    absent: &[&str],
) -> Result<Option<T>, ApplyError> {
    let error = match answer {
        Ok(found) => return Ok(Some(found)),
        Err(error) => error,
    };
    // Nothing of an answer is repeated but its code: some echo keys, or what was signed.
    match (error.code(), error.raw_response().map(|raw| raw.status().as_u16())) {
        (Some(code), _) if absent.contains(&code) => Ok(None),
        (None, Some(404)) if !absent.is_empty() => Ok(None),
        (Some(code), _) => Err(ApplyError::Answered(act, code.to_owned())),
        (None, Some(200..300)) => Err(ApplyError::Answered(act, "in words of its own".into())),
        (None, Some(status)) => Err(ApplyError::Answered(act, status.to_string())),
        (None, None) => Err(ApplyError::Silent(act, kind(&error).to_owned())),
    }
}

fn kind<E>(error: &SdkError<E>) -> &'static str {
    match error {
        SdkError::TimeoutError(_) => "it took too long",
        SdkError::DispatchFailure(failure) if failure.is_timeout() => "it took too long",
        SdkError::DispatchFailure(failure) if failure.is_io() => "the connection failed",
        SdkError::ResponseError(_) => "the connection failed",
        _ => "no request could be made, perhaps for want of keys",
    }
}

fn blocked() -> s3::PublicAccessBlockConfiguration {
    s3::PublicAccessBlockConfiguration::builder()
        .block_public_acls(true)
        .block_public_policy(true)
        .ignore_public_acls(true)
        .restrict_public_buckets(true)
        .build()
}

fn rule_for(
    rule: &Rule,
) -> Result<s3::LifecycleRule, aws_smithy_types::error::operation::BuildError> {
    let days = |days: u32| i32::try_from(days).unwrap_or(i32::MAX);
    let status = match rule.enabled {
        true => s3::ExpirationStatus::Enabled,
        false => s3::ExpirationStatus::Disabled,
    };
    let expiration = (rule.days.is_some() || rule.markers).then(|| {
        s3::LifecycleExpiration::builder()
            .set_days(rule.days.map(days))
            .set_expired_object_delete_marker(rule.markers.then_some(true))
            .build()
    });
    let noncurrent = rule
        .noncurrent_days
        .map(|age| s3::NoncurrentVersionExpiration::builder().noncurrent_days(days(age)).build());
    let unfinished = rule.unfinished_days.map(|age| {
        s3::AbortIncompleteMultipartUpload::builder().days_after_initiation(days(age)).build()
    });
    s3::LifecycleRule::builder()
        .id(&rule.id)
        .status(status)
        .filter(s3::LifecycleRuleFilter::builder().prefix(&rule.prefix).build())
        .set_expiration(expiration)
        .set_noncurrent_version_expiration(noncurrent)
        .set_abort_incomplete_multipart_upload(unfinished)
        .build()
}

fn rule_of(rule: &s3::LifecycleRule) -> Rule {
    let days = |days: Option<i32>| days.and_then(|days| u32::try_from(days).ok());
    let filter = rule.filter();
    let and = filter.and_then(|filter| filter.and());
    #[allow(deprecated, reason = "older servers write the prefix there")]
    let old = rule.prefix();
    let prefix = old.or_else(|| filter.and_then(|filter| filter.prefix()));
    let sizes = filter.map(|f| (f.object_size_greater_than(), f.object_size_less_than()));
    let sizes = [sizes, and.map(|a| (a.object_size_greater_than(), a.object_size_less_than()))];
    let expiration = rule.expiration();
    Rule {
        id: rule.id().unwrap_or_default().to_owned(),
        enabled: *rule.status() == s3::ExpirationStatus::Enabled,
        prefix: prefix.or_else(|| and.and_then(|and| and.prefix())).unwrap_or_default().to_owned(),
        by_size: sizes.iter().flatten().any(|(more, less)| more.is_some() || less.is_some()),
        by_tag: filter.is_some_and(|filter| filter.tag().is_some())
            || and.is_some_and(|and| !and.tags().is_empty()),
        days: days(expiration.and_then(|expiration| expiration.days())),
        on_date: expiration.is_some_and(|expiration| expiration.date().is_some()),
        markers: expiration.and_then(|e| e.expired_object_delete_marker()) == Some(true),
        noncurrent_days: days(
            rule.noncurrent_version_expiration()
                .and_then(|noncurrent| noncurrent.noncurrent_days()),
        ),
        unfinished_days: days(
            rule.abort_incomplete_multipart_upload()
                .and_then(|abort| abort.days_after_initiation()),
        ),
        moves: !rule.transitions().is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::lifecycle::wanted;

    #[test]
    fn a_rule_reads_back_as_it_was_written() {
        for rule in wanted("p", Some(30), true) {
            let written = rule_for(&rule).expect("a whole rule");
            assert_eq!(rule_of(&written), rule);
        }
    }
}
