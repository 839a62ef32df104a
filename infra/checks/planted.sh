# shellcheck shell=bash
# Faults that the checks must find. Sourced by infra/check, whose functions it calls.

# CHECK|FILE|WHAT|SED EXPRESSION
faults() {
    cat <<'END'
formatted|infra/terraform/modules/deployment-bucket/main.tf|an indentation|s/^  bucket        = var.name/    bucket = var.name/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|a misspelt argument|s/noncurrent_days = local/noncurent_days = local/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|an unknown block|s/^      expiration {/      expiry {/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|a status that is no status|s/status = "Enabled"/status = "enabled"/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|reads that live two days|s/"db-reads\/" = 1/"db-reads\/" = 2/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|a prefix that matches too much|s/"db-reads\/" = 1/"db-reads" = 1/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|records that expire|s/"probe\/"    = 1/"hosts\/" = 1/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|noncurrent versions that stay|s/noncurrent_days = 1/noncurrent_days = 30/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|delete markers that stay|s/expired_object_delete_marker = true/expired_object_delete_marker = false/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|unfinished uploads that stay|s/unfinished_days = 1/unfinished_days = 9/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|objects that may be replaced|s/"router\/\*\/serial"/"router\/*"/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|a denial that allows|s/Effect    = "Deny"/Effect    = "Allow"/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/main.tf|a condition turned round|s/"s3:if-none-match" = "true"/"s3:if-none-match" = "false"/
planned deployment-bucket|infra/terraform/modules/deployment-bucket/variables.tf|versions by default|/variable "versioned"/,/^}/s/default     = false/default     = true/
guarded|infra/terraform/modules/data-bucket/main.tf|data that may become public|s/block_public_policy     = true/block_public_policy     = false/
planned data-bucket|infra/terraform/modules/data-bucket/main.tf|data that may become public|s/restrict_public_buckets = true/restrict_public_buckets = false/
planned data-bucket|infra/terraform/modules/data-bucket/main.tf|replicas that expire|s/^    filter {}/    filter {}\n    expiration {\n      days = 1\n    }/
planned roles|infra/terraform/modules/roles/policies/console.json|a console that reads every region|s/:::${data}/:::*-data-*/
planned roles|infra/terraform/modules/roles/policies/agent.json|a box that reads token hashes|s/${deployment}\/hosts/${deployment}\/accounts/
planned roles|infra/terraform/modules/roles/policies/agent.json|a box that deletes|s/"s3:GetObject"/"s3:GetObject", "s3:DeleteObject"/
planned roles|infra/terraform/modules/roles/policies/agent.json|a name left open|s/${name}/$${name}/
planned roles|infra/terraform/modules/roles/main.tf|a name that two principals have|s/condition     = length.*/condition     = true/
planned roles|infra/terraform/modules/roles/outputs.tf|a box told another region's bucket|s/local.data_urls\[region\]/values(local.data_urls)[0]/
composed|docker-compose.yml|an unknown network|s/networks: \[store\]/networks: [stor]/
composed|docker-compose.yml|an unknown condition|s/service_completed_successfully/service_finished/
composed|docker-compose.yml|a service that is not there|s/^      init:$/      inti:/
composed|docker-compose.yml|an unknown key|s/read_only: true/readonly: true/
scripted|infra/compose/init.sh|an open quote|s/"\$1" "\$2"$/"$1" "$2/
parsed|infra/compose/policies/console.json|an open bracket|$d
parsed|infra/compose/litestream.yml|an open quote|s/type: s3/type: "s3/
END
}

# A copy of what the checks read.
copy() {
    rm -rf "$2"
    mkdir -p "$2"
    cp -R "$1/infra" "$1/docker-compose.yml" "$2/"
}

plant() { # CHECKOUT COPY CHECK FILE WHAT EXPRESSION
    local check=$3
    copy "$1" "$2"
    sed -i "$6" "$2/$4"
    if cmp -s "$1/$4" "$2/$4"; then
        echo "$5: the fault changes nothing in $4"
        return 1
    fi
    case $check in
    planned\ *) set -- "$@" planned "$2" "modules/${check#planned }" ;;
    *) set -- "$@" "$check" "$2" ;;
    esac
    if "${@:7}" >/dev/null 2>&1; then
        echo "$5 in $4: not found by $check"
        return 1
    fi
    printf 'found by %s: %s\n' "${check%% *}" "$5"
}

planted() {
    local folder check file what expression found=0 missed=0
    folder=$(mktemp -d)
    # Nothing is found where nothing is wrong: else every fault would count as found.
    copy "$1" "$folder/copy"
    (everything "$folder/copy") >/dev/null
    while IFS='|' read -r check file what expression; do
        if plant "$1" "$folder/copy" "$check" "$file" "$what" "$expression" </dev/null; then
            found=$((found + 1))
        else
            missed=$((missed + 1))
        fi
    done < <(faults)
    rm -rf "$folder"
    echo "planted faults: $found found, $missed missed"
    [ "$missed" -eq 0 ]
}
