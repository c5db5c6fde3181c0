{{/* Names, labels, images, and the common parts of all pods. */}}

{{- define "weft.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of all names; short, as `-postgres` and a Job's hash follow. */}}
{{- define "weft.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "weft.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "weft.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of cluster-wide objects: two releases of one name may live in two namespaces. */}}
{{- define "weft.clusterName" -}}
{{- printf "%s-%s-worker" .Release.Namespace (include "weft.fullname" .) -}}
{{- end -}}

{{/* A list of (root, component): the labels that select its pods; never to be changed, as selectors are immutable. */}}
{{- define "weft.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "weft.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* (root, component) */}}
{{- define "weft.labels" -}}
{{- $root := index . 0 -}}
{{ include "weft.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: weft
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (root, image section): our own images have the chart's version by default. */}}
{{- define "weft.image" -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* (root, service, port): URL of a Service of ours. */}}
{{- define "weft.serviceUrl" -}}
http://{{ include "weft.serviceHost" . }}:{{ index . 2 }}
{{- end -}}

{{- define "weft.serviceHost" -}}
{{- $root := index . 0 -}}
{{ include "weft.fullname" $root }}-{{ index . 1 }}.{{ $root.Release.Namespace }}.svc{{ with $root.Values.clusterDomain }}.{{ . }}{{ end }}
{{- end -}}

{{- define "weft.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* (root, component, its values): the placement of its pods. */}}
{{- define "weft.scheduling" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if hasKey $values "topologySpreadConstraints" }}
topologySpreadConstraints:
{{- if $values.topologySpreadConstraints }}
{{- toYaml $values.topologySpreadConstraints | nindent 2 }}
{{- else }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "weft.selector" $ | nindent 8 }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The beginning of each pod's spec. Service links would add variables that begin with WEFT_. */}}
{{- define "weft.pod" -}}
{{- $root := index . 0 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
enableServiceLinks: false
{{- end -}}
