{{/* Checks that a schema can't express: values that make sense only together. */}}
{{- define "weft.checks" -}}
{{- $values := .Values -}}
{{- range $store := list "postgres" "redis" -}}
{{- $one := index $values $store -}}
{{- if and (not $one.enabled) (not $one.url) (not $one.existingSecret.name) -}}
{{- fail (printf "%s.enabled is false: set %s.url, or %s.existingSecret.name to a Secret that holds it" $store $store $store) -}}
{{- end -}}
{{- if and $one.enabled $one.url -}}
{{- fail (printf "%s.url is for a server of yours: set %s.enabled to false, or leave %s.url empty" $store $store $store) -}}
{{- end -}}
{{- end -}}
{{- if $values.s3.enabled -}}
{{- if $values.s3.endpoint -}}
{{- fail "s3.endpoint is for a store of yours: set s3.enabled to false, or leave s3.endpoint empty" -}}
{{- end -}}
{{- else -}}
{{- if not $values.s3.endpoint -}}{{- fail "s3.enabled is false: set s3.endpoint" -}}{{- end -}}
{{- if and (not $values.s3.existingSecret.name) (not (and $values.s3.accessKey $values.s3.secretKey)) -}}
{{- fail "s3.enabled is false: set s3.accessKey and s3.secretKey, or s3.existingSecret.name to a Secret that holds them" -}}
{{- end -}}
{{- end -}}
{{- if and $values.ingress.enabled (not $values.ingress.host) -}}
{{- fail "ingress.enabled is true: set ingress.host" -}}
{{- end -}}
{{- $engines := include "weft.engines" . | fromJson -}}
{{- if not (hasKey $engines $values.settings.default_engine) -}}
{{- fail (printf "settings.default_engine %q is none of settings.engines: %s" $values.settings.default_engine (keys $engines | sortAlpha | join ", ")) -}}
{{- end -}}
{{- range $name, $_ := $values.engineSecrets -}}
{{- if not (hasKey $engines $name) -}}
{{- fail (printf "engineSecrets.%s: settings.engines has no engine of that name" $name) -}}
{{- end -}}
{{- end -}}
{{- range $name, $engine := $engines -}}
{{- if and $values.settings.multi_tenant (ne $engine.type "kubernetes") -}}
{{- fail (printf "settings.engines.%s is of type %s, which is no boundary between tenants: set settings.multi_tenant to false, or leave it out" $name $engine.type) -}}
{{- end -}}
{{- if $engine.token -}}
{{- fail (printf "settings.engines.%s.token is a credential, and settings are no place for one: put it into a Secret, name that in engineSecrets.%s.existingSecret, and set token_file to /etc/weft/engines/%s/<key>" $name $name $name) -}}
{{- end -}}
{{- range $field := list "kubeconfig" "token_file" "ca_file" -}}
{{- $path := index $engine $field -}}
{{- if and $path (hasPrefix "/etc/weft/engines/" $path) (not (hasKey $values.engineSecrets (index (splitList "/" $path) 4))) -}}
{{- fail (printf "settings.engines.%s.%s is %s: name the Secret that holds it in engineSecrets.%s.existingSecret" $name $field $path (index (splitList "/" $path) 4)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
