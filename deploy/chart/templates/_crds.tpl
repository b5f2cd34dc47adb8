{{- /* The text of Istio's definitions, with lines of --- between them. */}}
{{- define "navarch.definitions" -}}
{{- .Files.Get "files/crds/istio.yaml" | required "crds.install: this copy of the chart has no files/crds/istio.yaml: package it with `make chart`" | trimPrefix "---\n" }}
{{- end }}

{{- /* The name of the definition in a text: that of its metadata, whose lines are the only ones with two spaces. */}}
{{- define "navarch.definition" -}}
{{- regexFind "(?m)^  name: .*$" . | trimPrefix "  name: " }}
{{- end }}

{{- /* The names of those that are there and not this release's, as a YAML list: Helm refuses to take over what has not its label and annotations
(helm.sh: pkg/action/validate.go), and what is somebody else's is of a version that he chose. */}}
{{- define "navarch.foreignDefinitions" -}}
{{- $foreign := list }}
{{- range include "navarch.definitions" . | splitList "\n---\n" }}
  {{- $name := include "navarch.definition" . }}
  {{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name }}
    {{- $a := .metadata.annotations | default dict }}
    {{- $ours := and (eq (index (.metadata.labels | default dict) "app.kubernetes.io/managed-by" | default "") "Helm")
      (eq (index $a "meta.helm.sh/release-name" | default "") $.Release.Name) (eq (index $a "meta.helm.sh/release-namespace" | default "") $.Release.Namespace) }}
    {{- if not $ours }}{{ $foreign = append $foreign $name }}{{ end }}
  {{- end }}
{{- end }}
{{- toYaml $foreign }}
{{- end }}
