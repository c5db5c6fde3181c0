{{/* weft.toml, and the environment that carries the credentials. */}}

{{/* Engines on this very cluster, as a map: type kubernetes without a kubeconfig; namespace and api_url filled in. */}}
{{- define "weft.engines" -}}
{{- $engines := dict -}}
{{- range $name, $engine := .Values.settings.engines -}}
{{- if $engine -}}
{{- $engine = deepCopy $engine -}}
{{- if and (eq $engine.type "kubernetes") (not $engine.kubeconfig) -}}
{{- $own := dict "namespace" $.Values.learners.namespace "api_url" (include "weft.serviceUrl" (list $ "api" $.Values.api.service.port)) -}}
{{- $engine = merge $engine $own -}}
{{- end -}}
{{- $_ := set $engines $name $engine -}}
{{- end -}}
{{- end -}}
{{- toJson $engines -}}
{{- end -}}

{{/*
What the engines on this cluster need of it: {"list": namespaces, "any": one per project, "create": the worker makes
them, "queues": Kueue is asked, "open": namespaces whose learners have no policies of their own}.
*/}}
{{- define "weft.learnerNamespaces" -}}
{{- $found := dict "list" list "any" false "create" false "queues" false "open" list -}}
{{- range $name, $engine := include "weft.engines" . | fromJson -}}
{{- if and (eq $engine.type "kubernetes") (not $engine.kubeconfig) -}}
{{- if contains "{project}" $engine.namespace -}}
{{- $_ := set $found "any" true -}}
{{- else -}}
{{- $_ := set $found "list" (append $found.list $engine.namespace | uniq | sortAlpha) -}}
{{- end -}}
{{- if $engine.create_namespaces -}}{{- $_ := set $found "create" true -}}{{- end -}}
{{- if $engine.queue -}}{{- $_ := set $found "queues" true -}}{{- end -}}
{{- if eq (toString $engine.network_policies) "false" -}}{{- $_ := set $found "open" (append $found.open $engine.namespace) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "weft.publicUrl" -}}
{{- if .Values.api.publicUrl -}}
{{ .Values.api.publicUrl }}
{{- else if .Values.ingress.enabled -}}
{{ ternary "https" "http" (not (empty .Values.ingress.tlsSecret)) }}://{{ .Values.ingress.host }}
{{- else -}}
{{ include "weft.serviceUrl" (list . "api" .Values.api.service.port) }}
{{- end -}}
{{- end -}}

{{- define "weft.s3Endpoint" -}}
{{- if .Values.s3.enabled -}}
{{ include "weft.serviceUrl" (list . "s3" .Values.s3.service.port) }}
{{- else -}}
{{ .Values.s3.endpoint }}
{{- end -}}
{{- end -}}

{{- define "weft.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end -}}

{{/* A value as TOML: JSON's scalars are TOML's (Helm's own toToml writes whole numbers as floats). */}}
{{- define "weft.toml.value" -}}
{{- if kindIs "map" . -}}
{ {{- $comma := "" -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}{{ $comma }} {{ include "weft.toml.key" $key }} = {{ include "weft.toml.value" $value }}{{- $comma = "," -}}{{- end -}}
{{- end }} }
{{- else if kindIs "slice" . -}}
[ {{- range $index, $value := . -}}{{ if $index }}, {{ end }}{{ include "weft.toml.value" $value }}{{- end -}} ]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* The keys of a section, one a line; null values are left out. */}}
{{- define "weft.toml.keys" -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) }}
{{ include "weft.toml.key" $key }} = {{ include "weft.toml.value" $value }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "weft.toml" -}}
{{- $settings := .Values.settings -}}
default_engine = {{ toJson $settings.default_engine }}
multi_tenant = {{ toJson $settings.multi_tenant }}

[api]
host = "0.0.0.0"
port = 8080
public_url = {{ include "weft.publicUrl" . | toJson }}
{{- with .Values.api.ffdlOrigins }}
ffdl_origins = {{ toJson . }}
{{- end }}

[s3]
endpoint = {{ include "weft.s3Endpoint" . | toJson }}
{{- with .Values.s3.publicEndpoint }}
public_endpoint = {{ toJson . }}
{{- end }}
region = {{ toJson .Values.s3.region }}
bucket = {{ toJson .Values.s3.bucket }}
{{- range $name, $engine := include "weft.engines" . | fromJson }}

[engines.{{ include "weft.toml.key" $name }}]
{{- include "weft.toml.keys" $engine }}
{{- end }}
{{- range $name, $profile := $settings.profiles }}
{{- if $profile }}

[profiles.{{ include "weft.toml.key" $name }}]
{{- include "weft.toml.keys" $profile }}
{{- end }}
{{- end }}
{{- range $name, $provider := $settings.oidc }}
{{- if $provider }}

[oidc.{{ include "weft.toml.key" $name }}]
{{- include "weft.toml.keys" $provider }}
{{- end }}
{{- end }}
{{- range $section := list "fair_share" "images" "limits" "notify" "outgoing" "timings" "telemetry" "retention" "audit" "identity" }}
{{- with index $settings $section }}

[{{ $section }}]
{{- include "weft.toml.keys" . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* (root, parts): environment of our processes. Parts: which credentials they get. `own`: name of our Secret. */}}
{{- define "weft.env" -}}
{{- $root := .root -}}
- name: WEFT_CONFIG
  value: /etc/weft/weft.toml
- name: WEFT_HOME
  value: /var/lib/weft
- name: TMPDIR
  value: /tmp
{{- if has "postgres" .parts }}
{{- if $root.Values.postgres.enabled }}
- name: POSTGRES_PASSWORD
  valueFrom: {{- include "weft.secretRef" (dict "root" $root "of" "postgres" "own" .own) | nindent 4 }}
- name: WEFT_DATABASE_URL
  value: postgresql://weft:$(POSTGRES_PASSWORD)@{{ include "weft.serviceHost" (list $root "postgres") }}:5432/weft
{{- else }}
- name: WEFT_DATABASE_URL
  valueFrom: {{- include "weft.secretRef" (dict "root" $root "of" "postgres" "own" .own) | nindent 4 }}
{{- end }}
{{- end }}
{{- if has "redis" .parts }}
{{- if $root.Values.redis.enabled }}
- name: REDIS_PASSWORD
  valueFrom: {{- include "weft.secretRef" (dict "root" $root "of" "redis" "own" .own) | nindent 4 }}
- name: WEFT_REDIS_URL
  value: redis://:$(REDIS_PASSWORD)@{{ include "weft.serviceHost" (list $root "redis") }}:6379/0
{{- else }}
- name: WEFT_REDIS_URL
  valueFrom: {{- include "weft.secretRef" (dict "root" $root "of" "redis" "own" .own) | nindent 4 }}
{{- end }}
{{- end }}
{{- if has "s3" .parts }}
- name: WEFT_S3__ACCESS_KEY
  valueFrom: {{- include "weft.secretRef" (dict "root" $root "of" "s3AccessKey" "own" .own) | nindent 4 }}
- name: WEFT_S3__SECRET_KEY
  valueFrom: {{- include "weft.secretRef" (dict "root" $root "of" "s3SecretKey" "own" .own) | nindent 4 }}
{{- end }}
{{- if has "metrics" .parts }}
- name: WEFT_TELEMETRY__METRICS_TOKEN
  valueFrom: {{- include "weft.secretRef" (dict "root" $root "of" "metrics" "own" .own) | nindent 4 }}
{{- end }}
{{- if has "keys" .parts }}
- name: WEFT_SECRET_KEYS
  valueFrom: {{- include "weft.secretRef" (dict "root" $root "of" "keys" "own" .own) | nindent 4 }}
{{- end }}
{{- end -}}
