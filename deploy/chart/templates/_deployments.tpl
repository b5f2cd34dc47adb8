{{- /* What files/sizes.yaml says of the size. */}}
{{- define "navarch.size" -}}
{{- index (.Files.Get "files/sizes.yaml" | fromYaml) .Values.size | toYaml }}
{{- end }}

{{- /* The number of proxies that the installation is for: that of the size, or as many as fit into the memory of the values' own Deployment; empty: that has
no limit of memory, or one whose unit is not known here. */}}
{{- define "navarch.proxies" -}}
{{- if not .Values.deployments }}{{ (include "navarch.size" . | fromYaml).proxies }}{{ end }}
{{- $replica := (.Files.Get "files/sizes.yaml" | fromYaml).replica }}
{{- range $entry := .Values.deployments }}
  {{- if has "xds" .roles }}
    {{- with dig "limits" "memory" "" (.resources | default dict) | include "navarch.bytes" }}
      {{- $each := divf (subf (divf . 2) $replica.idle) $replica.proxy | int64 | max 0 }}
      {{- mul $each (max 1 (sub (include "navarch.scaling" $entry | fromYaml).maxReplicas 1)) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* A quantity of Kubernetes as a number of bytes; empty: its unit is not known here. */}}
{{- define "navarch.bytes" -}}
{{- $text := include "navarch.scalar" . }}
{{- $unit := regexReplaceAll "^[0-9.]+" $text "" }}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- if and (ne $text $unit) (hasKey $units $unit) }}{{ mulf (trimSuffix $unit $text) (get $units $unit) | int64 }}{{ end }}
{{- end }}

{{- /* Which Deployments there are, as a YAML list: those of the values, else those of the size. Wrong ones are refused here, by name. */}}
{{- define "navarch.deployments" -}}
{{- include "navarch.checkIssuer" . }}
{{- $namespaces := dict }}
{{- range .Values.gatewaySecrets }}
  {{- if hasKey $namespaces .namespace }}{{ fail (printf "gatewaySecrets: namespace %s is there twice: list its names once" .namespace) }}{{ end }}
  {{- $_ := set $namespaces .namespace true }}
{{- end }}
{{- $other := eq .Values.issuer.kind "other" }}
{{- $all := .Values.deployments }}
{{- if not $all }}
  {{- $all = (include "navarch.size" . | fromYaml).deployments }}
  {{- if $other }}
    {{- range $all }}{{ $_ := set . "roles" (without .roles "ca") }}{{ end }}
  {{- end }}
{{- end }}
{{- $names := dict }}
{{- $roles := dict }}
{{- range $i, $_ := $all }}
  {{- $name := .name | default "" }}
  {{- if hasKey $names $name }}{{ fail (printf "deployments: the name %q is there twice" $name) }}{{ end }}
  {{- $_ := set $names $name true }}
  {{- /* It is the label navarch.io/deployment. */}}
  {{- include "navarch.checkName" (dict "value" "deployments" "name" (include "navarch.deployment" (dict "root" $ "entry" .)) "of" "" "most" 63) }}
  {{- if and (not .replicas) (not .autoscaling) }}{{ fail (printf "deployments[%d]: replicas or autoscaling is needed" $i) }}{{ end }}
  {{- if and .replicas .autoscaling }}{{ fail (printf "deployments[%d]: replicas and autoscaling exclude each other" $i) }}{{ end }}
  {{- with .autoscaling }}
    {{- if and .targetCPU .targetProxies }}{{ fail (printf "deployments[%d].autoscaling: targetCPU and targetProxies exclude each other" $i) }}{{ end }}
    {{- if lt (int .maxReplicas) (int .minReplicas) }}{{ fail (printf "deployments[%d].autoscaling: maxReplicas, %d, is less than minReplicas, %d" $i (int .maxReplicas) (int .minReplicas)) }}{{ end }}
  {{- end }}
  {{- $resources := .resources | default dict }}
  {{- $cpu := hasKey ($resources.requests | default dict) "cpu" | or (hasKey ($resources.limits | default dict) "cpu") }}
  {{- if and .autoscaling (not (.autoscaling | default dict).targetProxies) (not $cpu) }}
    {{- fail (printf "deployments[%d]: autoscaling by CPU needs resources.requests.cpu, of which it goes by a part (or autoscaling.targetProxies)" $i) }}
  {{- end }}
  {{- if and $other (has "ca" .roles) }}{{ fail "deployments: a Deployment has the role ca, and another CA signs (issuer.kind)" }}{{ end }}
  {{- if and (eq $.Values.issuer.kind "signers") (has "ca" .roles) (not (has "xds" .roles)) }}
    {{- fail "deployments: with signers of Kubernetes (issuer.kind) role ca goes together with role xds, which knows their roots" }}
  {{- end }}
  {{- range .roles }}
    {{- if hasKey $roles . }}{{ fail (printf "deployments: two of them have the role %s: list it once, and give that Deployment more replicas" .) }}{{ end }}
    {{- $_ := set $roles . true }}
  {{- end }}
{{- end }}
{{- range ternary (list "ingest" "xds") (list "ingest" "xds" "ca") $other }}
  {{- if not (hasKey $roles .) }}{{ fail (printf "deployments: none has the role %s" .) }}{{ end }}
{{- end }}
{{- if and (or .Values.injection.enabled .Values.validation.enabled) (not (hasKey $roles "admit")) }}
  {{- fail "deployments: none has the role admit, which answers the webhooks (injection.enabled, validation.enabled)" }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{- /* "true" where proxies find the CA at another address than their configuration: role ca is in a Deployment without role xds. */}}
{{- define "navarch.caApart" -}}
{{- range include "navarch.deployments" . | fromYamlArray }}
  {{- if and (has "ca" .roles) (not (has "xds" .roles)) }}true{{ end }}
{{- end }}
{{- end }}

{{- /* "true" for a Deployment with role admit alone: its processes have neither the key encryption key nor etcd. Takes an entry. */}}
{{- define "navarch.admitsAlone" -}}
{{- if eq (join "," .roles) "admit" }}true{{ end }}
{{- end }}

{{- /* The service accounts of the processes with role admit alone, with commas between them: role ca signs their serving certificates. That of the sizes is among them also
where no Deployment has it: an upgrade to another size makes it while the processes with role ca are still those of before. */}}
{{- define "navarch.admitAccounts" -}}
{{- $accounts := list (include "navarch.deployment" (dict "root" . "entry" (dict "name" "admit"))) }}
{{- range $entry := include "navarch.deployments" . | fromYamlArray }}
  {{- if include "navarch.admitsAlone" $entry }}{{ $accounts = append $accounts (include "navarch.deployment" (dict "root" $ "entry" $entry)) }}{{ end }}
{{- end }}
{{- join "," (uniq $accounts) }}
{{- end }}

{{- /* Seconds for which a Pod that is to end answers as before: an entry with root. Where role admit moves to another Deployment, Helm deletes the one that had it
before the other is ready: until then kube-proxy leads to Pods that end and still answer. */}}
{{- define "navarch.leaveSeconds" -}}
{{- if include "navarch.admitsAlone" .entry }}{{ max 60 (int .root.Values.leaveSeconds) }}{{ else }}{{ int .root.Values.leaveSeconds }}{{ end }}
{{- end }}

{{- define "navarch.caService" -}}
{{ include "navarch.service" . }}-ca
{{- end }}

{{- /* Between which numbers the autoscaler of a Deployment holds its replicas, as YAML: of a fixed number both are that. Takes an entry of navarch.deployments. No manifest
says a number of replicas: an autoscaler that has changed it owns it, so that Helm 4 would refuse to set another one, in an upgrade to fewer replicas or a rollback to a release from before. */}}
{{- define "navarch.scaling" -}}
{{- .autoscaling | default (dict "minReplicas" .replicas "maxReplicas" .replicas) | toYaml }}
{{- end }}
