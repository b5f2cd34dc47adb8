{{- /* The failure policy of a validation webhook. navarchd sets it to Fail once it has seen that wrong objects are refused (deploy/docs/validation.md): a
new configuration begins with Ignore, and one that is there keeps what it has. Takes a dict of configuration and webhook, by name. */}}
{{- define "navarch.failurePolicy" -}}
{{- $policy := "Ignore" }}
{{- range (lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" .configuration).webhooks }}
  {{- if eq .name $.webhook }}{{ $policy = .failurePolicy }}{{ end }}
{{- end }}
{{- $policy }}
{{- end }}

{{- define "navarch.webhookClient" -}}
clientConfig: # navarchd writes caBundle, where the certificate is one of its own
  {{- with .root.Values.issuer.servingRoots }}
  caBundle: {{ b64enc . }}
  {{- end }}
  service: {name: {{ include "navarch.service" .root }}, namespace: {{ .root.Release.Namespace }}, path: {{ .path | quote }}, port: 443}
{{- end }}

{{- /* What is the mesh's of the Gateway API, as lists of CEL: those of store/admit/validate, which a test of it holds to deploy/docs/validation.md, and a test of the chart this to
the page. */}}
{{- define "navarch.meshControllers" -}}
['istio.io/gateway-controller', 'istio.io/unmanaged-gateway', 'istio.io/mesh-controller']
{{- end }}
{{- define "navarch.meshClasses" -}}
['istio', 'istio-remote', 'istio-waypoint']
{{- end }}

{{- /* Gateways whose class has another name and a controller of the mesh's: a condition of a webhook reads no other object, and a policy reads GatewayClasses as its parameters. It
warns, and refuses nothing. */}}
{{- define "navarch.gatewayClasses" -}}
{{- $name := printf "navarch-gateway-classes%s-%s" (include "navarch.suffix" .) .Release.Namespace }}
{{- $rev := include "navarch.revision" . }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels:
    {{- include "navarch.labels" . | nindent 4 }}
spec:
  failurePolicy: Ignore
  paramKind: {apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass}
  matchConstraints:
    resourceRules:
    - {apiGroups: [gateway.networking.k8s.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [gateways]}
  matchConditions:
  - name: of-the-revision
    expression: >-
      (has(object.metadata.labels) && 'istio.io/rev' in object.metadata.labels ? object.metadata.labels['istio.io/rev'] : '{{ ternary $rev "" .Values.validation.default }}') == '{{ $rev }}'
  validations:
  - expression: >-
      object.spec.gatewayClassName != params.metadata.name || params.metadata.name in {{ include "navarch.meshClasses" . }} ||
      !(params.spec.controllerName in {{ include "navarch.meshControllers" . }})
    messageExpression: >-
      'spec.gatewayClassName: the Gateway API is not served by this version: a Gateway of class ' + params.metadata.name + ', whose controller is ' + params.spec.controllerName +
      ', gets no Deployment, Service, listeners or status, and its routes lead nowhere'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "navarch.labels" . | nindent 4 }}
spec:
  policyName: {{ $name }}
  paramRef: {selector: {}, parameterNotFoundAction: Allow}
  validationActions: [Warn]
{{- end }}

{{- /* One ValidatingWebhookConfiguration: a dict of root, configuration, webhook, labels and selector. */}}
{{- define "navarch.validation" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: {{ .configuration }}
  labels:
    app: istiod
    istio: istiod
    {{- with .tag }}
    istio.io/tag: {{ . }}
    {{- end }}
    {{- include "navarch.labels" .root | nindent 4 }}
webhooks:
- name: {{ .webhook }}
  {{- include "navarch.webhookClient" (dict "root" .root "path" "/validate") | nindent 2 }}
  rules:
  - operations: [CREATE, UPDATE]
    apiGroups: [security.istio.io, networking.istio.io, telemetry.istio.io, extensions.istio.io]
    apiVersions: ["*"]
    resources: ["*"]
  failurePolicy: {{ include "navarch.failurePolicy" (dict "configuration" .configuration "webhook" .webhook) }}
  sideEffects: None
  admissionReviewVersions: [v1]
  objectSelector:
    matchExpressions: {{ toJson .selector }}
{{- /* It warns, and refuses nothing: others act on the Gateway API, too, and are not to be held up. So navarchd never sets Fail here (store/admit/configure), and the API
server asks about what is the mesh's alone. */}}
- name: gateway-api.{{ .webhook }}
  {{- include "navarch.webhookClient" (dict "root" .root "path" "/validate") | nindent 2 }}
  rules:
  - operations: [CREATE, UPDATE]
    apiGroups: [gateway.networking.k8s.io]
    apiVersions: ["*"]
    resources: [gatewayclasses, gateways, httproutes, grpcroutes, tlsroutes, tcproutes, udproutes]
  matchConditions:
  - name: of-the-mesh
    expression: >-
      object.kind == 'GatewayClass' ? object.spec.controllerName in {{ include "navarch.meshControllers" . }} :
      object.kind == 'Gateway' ? object.spec.gatewayClassName in {{ include "navarch.meshClasses" . }} :
      has(object.spec.parentRefs) && object.spec.parentRefs.exists(p, has(p.kind) && p.kind in ['Service', 'ServiceEntry'])
  failurePolicy: Ignore
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
  objectSelector:
    matchExpressions: {{ toJson .selector }}
{{- end }}

{{- /* The name of a MutatingWebhookConfiguration: a dict of root and tag, empty for that of the revision. */}}
{{- define "navarch.injectionName" -}}
{{- $name := printf "istio-sidecar-injector%s" (include "navarch.suffix" .root) }}
{{- if .tag }}{{ $name = printf "istio-revision-tag-%s" .tag }}{{ end }}
{{- if ne .root.Release.Namespace "istio-system" }}{{ $name = printf "%s-%s" $name .root.Release.Namespace }}{{ end }}
{{- $name }}
{{- end }}

{{- /* The webhook configurations that the leader keeps the roots in, as a JSON list of names; empty: those of any name. Those of tags which stand for this revision already are among them,
where Helm sees the cluster. */}}
{{- define "navarch.webhookNames" -}}
{{- $tags := .Values.injection.tags | default list }}
{{- if not (has "*" $tags) }}
{{- $names := list (printf "istio-validator%s-%s" (include "navarch.suffix" .) .Release.Namespace) "istiod-default-validator" (include "navarch.injectionName" (dict "root" . "tag" "")) }}
{{- range concat (list "default") .Values.revisionTags $tags }}
  {{- $names = append $names (include "navarch.injectionName" (dict "root" $ "tag" .)) }}
{{- end }}
{{- range (lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "").items }}
  {{- $labels := .metadata.labels | default dict }}
  {{- if and (get $labels "istio.io/tag") (eq (get $labels "istio.io/rev") (include "navarch.revision" $)) }}{{ $names = append $names .metadata.name }}{{ end }}
{{- end }}
{{- uniq $names | toJson }}
{{- end }}
{{- end }}

{{- /* Refuses a tag whose webhooks would select what others select already: both would inject the same Pods. Istio's chart has no such check, and istioctl turns the default
revision's webhooks off (istioctl/pkg/tag), which `navarchctl tag set default` does as well. Those that are off have a selector that nothing matches. */}}
{{- define "navarch.checkTags" -}}
{{- range .Values.revisionTags }}
  {{- if eq . (include "navarch.revision" $) }}
    {{- fail (printf "revisionTags: %s is the name of this revision, by which it is chosen without a tag: the webhooks of both would inject the same Pods" .) }}
  {{- end }}
  {{- if eq . "default" }}
    {{- range (lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "").items }}
      {{- $labels := .metadata.labels | default dict }}
      {{- if and (eq (get $labels "app") "sidecar-injector") (eq (get $labels "istio.io/rev") "default") (not (hasKey $labels "istio.io/tag")) }}
        {{- range $webhook := .webhooks }}
          {{- if not (hasKey (($webhook.namespaceSelector | default dict).matchLabels | default dict) "istio.io/deactivated") }}
            {{- fail (printf "revisionTags: the default revision is installed, and its webhooks would inject the same Pods as those of the tag default: leave the tag out and run `navarchctl tag set default --revision %s`, which turns them off, or uninstall that revision before" (include "navarch.revision" $)) }}
          {{- end }}
        {{- end }}
      {{- end }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* "true" where the tag default is there: then the default revision's own webhooks stay as `navarchctl tag` or istioctl has turned them off. */}}
{{- define "navarch.defaultIsTag" -}}
{{- range (lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "").items }}
  {{- $labels := .metadata.labels | default dict }}
  {{- if and (eq (get $labels "app") "sidecar-injector") (eq (get $labels "istio.io/tag") "default") }}true{{ end }}
{{- end }}
{{- end }}

{{- /* One webhook of injection: a dict of root, name, namespaces and pods (requirements of labels), and off, whether it is to select nothing. */}}
{{- define "navarch.injection" -}}
- name: {{ .name }}sidecar-injector.istio.io
  {{- include "navarch.webhookClient" (dict "root" .root "path" .root.Values.injection.path) | nindent 2 }}
  rules:
  - operations: [CREATE]
    apiGroups: [""]
    apiVersions: [v1]
    resources: [pods]
    scope: Namespaced
  failurePolicy: Fail
  sideEffects: None
  reinvocationPolicy: Never
  admissionReviewVersions: [v1]
  {{- if .off }}
  namespaceSelector: {matchLabels: {istio.io/deactivated: never-match}}
  objectSelector: {matchLabels: {istio.io/deactivated: never-match}}
  {{- else }}
  namespaceSelector:
    matchExpressions: {{ toJson .namespaces }}
  objectSelector:
    matchExpressions: {{ toJson .pods }}
  {{- end }}
{{- end }}

{{- /* One MutatingWebhookConfiguration, that of a revision or of a tag for it, as navarchctl injection-webhook prints it: a dict of root and tag. */}}
{{- define "navarch.injectionOf" -}}
{{- $rev := .tag | default (include "navarch.revision" .root) }}
{{- $off := and (not .tag) (eq $rev "default") (include "navarch.defaultIsTag" .root) }}
{{- $inRev := dict "key" "istio.io/rev" "operator" "In" "values" (list $rev) }}
{{- $noRev := dict "key" "istio.io/rev" "operator" "DoesNotExist" }}
{{- $unsaid := dict "key" "istio-injection" "operator" "DoesNotExist" }}
{{- $said := dict "key" "istio-injection" "operator" "In" "values" (list "enabled") }}
{{- $notFalse := dict "key" "sidecar.istio.io/inject" "operator" "NotIn" "values" (list "false") }}
{{- $true := dict "key" "sidecar.istio.io/inject" "operator" "In" "values" (list "true") }}
{{- $none := dict "key" "sidecar.istio.io/inject" "operator" "DoesNotExist" }}
{{- $notTheirs := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (list "kube-system" "kube-public" "kube-node-lease" "local-path-storage") }}
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: {{ include "navarch.injectionName" . }}
  labels:
    app: sidecar-injector
    {{- with .tag }}
    istio.io/tag: {{ . }}
    {{- end }}
    {{- include "navarch.labels" .root | nindent 4 }}
webhooks:
{{ include "navarch.injection" (dict "root" .root "off" $off "name" "rev.namespace." "namespaces" (list $inRev $unsaid) "pods" (list $notFalse)) }}
{{ include "navarch.injection" (dict "root" .root "off" $off "name" "rev.object." "namespaces" (list $noRev $unsaid) "pods" (list $notFalse $inRev)) }}
{{- if eq $rev "default" }}
{{ include "navarch.injection" (dict "root" .root "off" $off "name" "namespace." "namespaces" (list $said) "pods" (list $notFalse)) }}
{{ include "navarch.injection" (dict "root" .root "off" $off "name" "object." "namespaces" (list $unsaid $noRev) "pods" (list $true $noRev)) }}
{{- if .root.Values.injection.everywhere }}
{{ include "navarch.injection" (dict "root" .root "off" $off "name" "auto." "namespaces" (list $unsaid $noRev $notTheirs) "pods" (list $none $noRev)) }}
{{- end }}
{{- end }}
{{- end }}
