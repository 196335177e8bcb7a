#!/usr/bin/env bash
# What cluster.yaml wants of an AWS account, once: a bucket (checkpoints, data sets, what is kept of a
# head) and a role for the head and for workers. Ray makes key pair and firewall itself. It may be run
# again. It wants the AWS CLI and credentials that may create buckets and roles:
#
#   bash clusters/aws.sh BUCKET REGION
set -euo pipefail

bucket=${1:?usage: aws.sh BUCKET REGION}
region=${2:?usage: aws.sh BUCKET REGION}
export AWS_REGION=$region AWS_DEFAULT_REGION=$region AWS_PAGER=

aws s3api head-bucket --bucket "$bucket" > /dev/null 2>&1 || aws s3 mb "s3://$bucket"

# Machines of EC2 may take the role.
trust='{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
  "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}'
# Both read and write the bucket; it is listed, too: bitfront asks what is there.
storage='{"Version": "2012-10-17", "Statement": [
  {"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetBucketLocation"],
   "Resource": "arn:aws:s3:::'$bucket'"},
  {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject",
   "s3:AbortMultipartUpload"], "Resource": "arn:aws:s3:::'$bucket'/*"}]}'

make_profile() { # its role, and a profile of that name, which is how a machine gets a role
  aws iam get-role --role-name "$1" > /dev/null 2>&1 ||
    aws iam create-role --role-name "$1" --assume-role-policy-document "$trust" > /dev/null
  aws iam put-role-policy --role-name "$1" --policy-name storage --policy-document "$storage"
  aws iam get-instance-profile --instance-profile-name "$1" > /dev/null 2>&1 || {
    aws iam create-instance-profile --instance-profile-name "$1" > /dev/null
    aws iam add-role-to-instance-profile --instance-profile-name "$1" --role-name "$1"
  }
}

make_profile bitfront-worker
make_profile bitfront-head

# The head starts and ends workers, hands them their role, and looks up the image they start from.
worker=$(aws iam get-role --role-name bitfront-worker --query Role.Arn --output text)
aws iam attach-role-policy --role-name bitfront-head \
  --policy-arn arn:aws:iam::aws:policy/AmazonEC2FullAccess
aws iam put-role-policy --role-name bitfront-head --policy-name workers --policy-document \
  '{"Version": "2012-10-17", "Statement": [
  {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "'"$worker"'"},
  {"Effect": "Allow", "Action": "ssm:GetParameters",
   "Resource": "arn:aws:ssm:*::parameter/aws/service/deeplearning/*"}]}'

# An account that never had a spot machine lacks the role EC2 uses for them; others have it already.
aws iam create-service-linked-role --aws-service-name spot.amazonaws.com > /dev/null 2>&1 || true

echo "bucket s3://$bucket and the profiles bitfront-head and bitfront-worker are there"
quota() {
  aws service-quotas get-service-quota --service-code ec2 --quota-code "$1" \
    --query Quota.Value --output text 2> /dev/null || echo "unknown"
}
# A g5.2xlarge counts 8. New accounts often have 0: no worker starts then.
echo "vCPUs you may have in $region: GPU spot machines $(quota L-3819A6DF)," \
  "GPU machines on demand $(quota L-DB2E81BA) (more: Service Quotas, Amazon EC2, G and VT)"
