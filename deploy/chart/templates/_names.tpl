{{- /* Names and labels. A revision that is empty, or "default", has no suffix, as in Istio's chart. */}}

{{- define "navarch.suffix" -}}
{{- if and .Values.revision (ne .Values.revision "default") }}-{{ .Values.revision }}{{ end }}
{{- end }}

{{- define "navarch.revision" -}}
{{ .Values.revision | default "default" }}
{{- end }}

{{- /* The Service at which proxies look for their control plane. */}}
{{- define "navarch.service" -}}
istiod{{ include "navarch.suffix" . }}
{{- end }}

{{- /* Takes a dict of root and entry, one of navarch.deployments. */}}
{{- define "navarch.deployment" -}}
{{ include "navarch.service" .root }}{{ with .entry.name }}-{{ . }}{{ end }}
{{- end }}

{{- define "navarch.etcd" -}}
navarch-etcd{{ include "navarch.suffix" . }}
{{- end }}

{{- define "navarch.labels" -}}
app.kubernetes.io/name: navarch
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Values.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: istio
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
istio.io/rev: {{ include "navarch.revision" . | quote }}
{{- end }}

{{- /* The labels by which the Services, policies and budgets know the Pods of this revision. */}}
{{- define "navarch.selector" -}}
app.kubernetes.io/name: navarchd
istio.io/rev: {{ include "navarch.revision" . | quote }}
{{- end }}

{{- define "navarch.etcdSelector" -}}
app.kubernetes.io/name: navarch-etcd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "navarch.image" -}}
{{ .Values.hub }}/{{ .Values.image }}:{{ .Values.tag | default .Chart.AppVersion }}
{{- end }}
