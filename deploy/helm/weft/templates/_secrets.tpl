{{/*
Credentials: from a Secret of the user's, from the values, from our Secret in the cluster, or generated; in this order.
*/}}

{{/*
All credentials by their use, as a map: name and key of the user's Secret, or key and value of ours. Made once a
rendering, as what is generated would differ each time it is asked for.
*/}}
{{- define "weft.credentials" -}}
{{- if not (hasKey .Values "weftCredentials") -}}
{{- $values := .Values -}}
{{- $kept := (lookup "v1" "Secret" .Release.Namespace (include "weft.fullname" .) | default dict).data | default dict -}}
{{- $all := dict
  "keys" (dict "from" $values.secretKeys.existingSecret.name "key" $values.secretKeys.existingSecret.key "value" $values.secretKeys.value)
  "s3AccessKey" (dict "from" $values.s3.existingSecret.name "key" $values.s3.existingSecret.accessKeyKey "value" $values.s3.accessKey)
  "s3SecretKey" (dict "from" $values.s3.existingSecret.name "key" $values.s3.existingSecret.secretKeyKey "value" $values.s3.secretKey)
-}}
{{- with $values.serviceMonitor -}}
{{- if .enabled }}{{ $_ := set $all "metrics" (dict "from" .existingSecret.name "key" .existingSecret.key "value" .token) }}{{ end -}}
{{- end -}}
{{- range $part, $names := dict "postgres" (list "postgres-password" "database-url") "redis" (list "redis-password" "redis-url") -}}
{{- $store := index $values $part -}}
{{- $key := ternary (first $names) (last $names) $store.enabled -}}
{{- $value := ternary $store.password $store.url $store.enabled -}}
{{- $from := $store.existingSecret.name -}}
{{- $_ := set $all $part (dict "from" $from "key" (ternary ($store.existingSecret.key | default $key) $key (not (empty $from))) "value" $value) -}}
{{- end -}}
{{- $ours := dict "keys" "secret-keys" "s3AccessKey" "s3-access-key" "s3SecretKey" "s3-secret-key" "metrics" "metrics-token" -}}
{{- range $use, $one := $all -}}
{{- if not $one.from -}}
{{- $_ := set $one "key" (index $ours $use | default $one.key) -}}
{{- $there := index $kept $one.key | default "" | b64dec -}}
{{- if $one.value -}}
{{- else if $there -}}
{{- $_ := set $one "value" $there -}}
{{- else if eq $use "keys" -}}
{{- $_ := set $one "value" (randBytes 32 | replace "+" "-" | replace "/" "_") -}}
{{- else -}}
{{- $_ := set $one "value" (randAlphaNum 40) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set .Values "weftCredentials" $all -}}
{{- end -}}
{{- toJson .Values.weftCredentials -}}
{{- end -}}

{{/* root, of, own: the `valueFrom` of a credential; `own` names the Secret of ours that holds it. */}}
{{- define "weft.secretRef" -}}
{{- $one := index (include "weft.credentials" .root | fromJson) .of -}}
secretKeyRef:
  name: {{ $one.from | default .own }}
  key: {{ $one.key }}
{{- end -}}

{{/* root, uses: `data` of a Secret of ours with these credentials; empty when all are in the user's Secrets. */}}
{{- define "weft.secretData" -}}
{{- $all := include "weft.credentials" .root | fromJson -}}
{{- range $use := .uses -}}
{{- $one := index $all $use -}}
{{- if not $one.from }}
{{ $one.key }}: {{ $one.value | b64enc | quote }}
{{- end -}}
{{- end -}}
{{- end -}}
