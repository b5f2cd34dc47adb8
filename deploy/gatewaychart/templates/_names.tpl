{{- define "gateway.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end }}

{{- define "gateway.account" -}}
{{ .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "gateway.name" .) "default") }}
{{- end }}

{{- /* The labels by which Deployment, Service and Gateways select the Pods. An empty app is kept: it unsets the default. */}}
{{- define "gateway.selector" -}}
{{- $name := include "gateway.name" . -}}
app: {{ hasKey .Values.labels "app" | ternary .Values.labels.app $name | quote }}
istio: {{ hasKey .Values.labels "istio" | ternary .Values.labels.istio (trimPrefix "istio-" $name) | quote }}
{{- end }}

{{- /* Labels of an object: a list of the root and further labels. Those of the user come before both. None of the labels
of Pods changes with the version of the chart, which would roll all gateways. */}}
{{- define "gateway.labels" -}}
{{- $root := index . 0 -}}
{{- $own := dict "app.kubernetes.io/name" (include "gateway.name" $root) "app.kubernetes.io/instance" $root.Release.Name "app.kubernetes.io/part-of" "istio" }}
{{- with $root.Values.networkGateway }}{{ $_ := set $own "topology.istio.io/network" . }}{{ end }}
{{- include "gateway.selector" $root }}
{{ include "gateway.texts" (merge (omit $root.Values.labels "app" "istio") (index . 1) $own) }}
{{- end }}

{{- /* Name, labels and annotations of an object: a list of the root, its name and further annotations. */}}
{{- define "gateway.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "gateway.labels" (list $root (dict "app.kubernetes.io/managed-by" $root.Release.Service "app.kubernetes.io/version" $root.Chart.AppVersion "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version))) | nindent 2 }}
{{- with merge (deepCopy (index . 2)) $root.Values.annotations }}
annotations:
  {{- include "gateway.texts" . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* A map of names to texts; numbers and booleans are written as texts. */}}
{{- define "gateway.texts" -}}
{{- $lines := list }}
{{- range $key, $value := . }}
{{- $lines = append $lines (printf "%s: %s" (quote $key) (include "gateway.text" $value)) }}
{{- end }}
{{- join "\n" $lines }}
{{- end }}

{{- /* A text of YAML; a whole number of a million or more would be 1e+06. */}}
{{- define "gateway.text" -}}
{{- if kindIs "float64" . }}{{ eq (floor .) . | ternary (int64 .) . | toString | quote }}{{ else }}{{ toString . | quote }}{{ end }}
{{- end }}

{{- define "gateway.podSecurity" -}}
{{- if .Values.securityContext }}
{{- toYaml .Values.securityContext }}
{{- else -}}
sysctls:
- {name: net.ipv4.ip_unprivileged_port_start, value: "0"}
{{- end }}
{{- end }}

{{- define "gateway.containerSecurity" -}}
{{- if .Values.containerSecurityContext }}
{{- toYaml .Values.containerSecurityContext }}
{{- else -}}
capabilities: {drop: [ALL]}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
{{- if ne .Values.platform "openshift" }}
runAsUser: 1337
runAsGroup: 1337
{{- end }}
{{- end }}
{{- end }}

{{- /* Amounts that are not null: a null in a user's values takes a default away. */}}
{{- define "gateway.resources" -}}
{{- $out := dict }}
{{- range $kind, $amounts := .Values.resources }}
{{- $given := dict }}
{{- range $name, $amount := $amounts }}
{{- if $amount }}{{ $_ := set $given $name $amount }}{{ end }}
{{- end }}
{{- if $given }}{{ $_ := set $out $kind $given }}{{ end }}
{{- end }}
{{- toYaml $out }}
{{- end }}
