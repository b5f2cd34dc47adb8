{{- /* The rights of each role, as deploy/docs/kubernetes.md, Rights, lists them for all roles together: a test compares both. Each takes a dict of
root and role, and is a list of rules, empty where the role needs none. */}}

{{- /* In the whole cluster. */}}
{{- define "navarch.clusterRules" -}}
{{- $v := .root.Values }}
{{- if eq .role "ingest" }}
- apiGroups: [""]
  resources: [services, pods, nodes, namespaces, serviceaccounts]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [istio-ca-root-cert, istio-ca-crl]
  verbs: [get, list, watch, update]
- apiGroups: [""]
  resources: [configmaps] # of any name: Kubernetes does not know the name when it is asked for this right
  verbs: [create]
- apiGroups: [""] # Warning Events about objects that are refused or held
  resources: [events]
  verbs: [get, create, update]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings, clusterroles, clusterrolebindings]
  verbs: [list, watch]
- apiGroups: [networking.istio.io, security.istio.io, telemetry.istio.io, extensions.istio.io, gateway.networking.k8s.io]
  resources: ["*"]
  verbs: [list, watch]
- apiGroups: [authorization.k8s.io] # who may accept removals that are held
  resources: [subjectaccessreviews]
  verbs: [create]
- apiGroups: [admissionregistration.k8s.io] # for the roots and the failure policy of webhooks
  resources: [validatingwebhookconfigurations, mutatingwebhookconfigurations]
  verbs: [list, watch]
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations, mutatingwebhookconfigurations]
  {{- with include "navarch.webhookNames" .root }}
  resourceNames: {{ . }}
  {{- end }}
  verbs: [get, update]
{{- if $v.machines }}
- apiGroups: [networking.istio.io] # for machines that register themselves
  resources: [workloadentries]
  verbs: [get, create, update, delete]
- apiGroups: [networking.istio.io]
  resources: [workloadentries/status]
  verbs: [update]
- apiGroups: [networking.istio.io]
  resources: [workloadgroups]
  verbs: [get]
{{- end }}
{{- if $v.automaticAddresses }}
- apiGroups: [networking.istio.io]
  resources: [serviceentries]
  verbs: [get]
- apiGroups: [networking.istio.io]
  resources: [serviceentries/status]
  verbs: [update]
{{- end }}
{{- if $v.status }}
- apiGroups: [networking.istio.io, security.istio.io, telemetry.istio.io, extensions.istio.io]
  resources: ["*"]
  verbs: [get]
- apiGroups: [networking.istio.io]
  resources: [destinationrules/status, envoyfilters/status, gateways/status, proxyconfigs/status, serviceentries/status, sidecars/status, virtualservices/status, workloadentries/status, workloadgroups/status]
  verbs: [update]
- apiGroups: [security.istio.io]
  resources: [authorizationpolicies/status, peerauthentications/status, requestauthentications/status]
  verbs: [update]
- apiGroups: [telemetry.istio.io]
  resources: [telemetries/status]
  verbs: [update]
- apiGroups: [extensions.istio.io]
  resources: [trafficextensions/status, wasmplugins/status]
  verbs: [update]
{{- end }}
{{- else if eq .role "xds" }}
- apiGroups: [authorization.k8s.io] # who may have the private keys of gateways
  resources: [subjectaccessreviews]
  verbs: [create]
{{- else if and (eq .role "ca") (eq $v.issuer.kind "signers") }}
- apiGroups: [certificates.k8s.io]
  resources: [certificatesigningrequests]
  verbs: [create, get, delete]
- apiGroups: [certificates.k8s.io]
  resources: [certificatesigningrequests/approval]
  verbs: [update]
- apiGroups: [certificates.k8s.io]
  resources: [signers]
  resourceNames: {{ keys $v.issuer.signers | sortAlpha | toJson }}
  verbs: [approve]
{{- else if eq .role "admit" }}
- apiGroups: [""] # the versions of the kubelets
  resources: [nodes]
  verbs: [list]
- apiGroups: [discovery.k8s.io] # the addresses of the API servers, whose reviews come before others
  resources: [endpointslices]
  resourceNames: [kubernetes]
  verbs: [get]
- apiGroups: [networking.istio.io]
  resources: [proxyconfigs]
  verbs: [list, watch]
- apiGroups: [admissionregistration.k8s.io] # whether the API servers have the root of the serving certificate
  resources: [validatingwebhookconfigurations, mutatingwebhookconfigurations]
  verbs: [list, watch]
{{- end }}
{{- if or $v.tokenReview (eq .role "ingest") }}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- end }}
- nonResourceURLs: [/.well-known/openid-configuration, /openid/v1/jwks]
  verbs: [get]
{{- end }}

{{- /* In the namespace of the control plane. */}}
{{- define "navarch.namespaceRules" -}}
{{- $v := .root.Values }}
{{- $mesh := printf "istio%s" (include "navarch.suffix" .root) }}
{{- $injector := printf "istio-sidecar-injector%s" (include "navarch.suffix" .root) }}
{{- if eq .role "ingest" }}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ $mesh }}{{ with $v.sharedMeshConfig }}, {{ . }}{{ end }}]
  verbs: [list, watch]
- apiGroups: [networking.istio.io] # for the dry run of the validation webhook, which makes nothing
  resources: [gateways]
  verbs: [create]
{{- if $v.automaticAddresses }}
- apiGroups: [""] # whether istiod gives automatic addresses
  resources: [configmaps]
  resourceNames: [istio-ip-autoallocate]
  verbs: [get]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [istio-ip-autoallocate]
  verbs: [get]
{{- end }}
{{- else if eq .role "ca" }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [cacerts, istio-ca-secret]
  verbs: [get]
{{- else if eq .role "admit" }}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ $mesh }}, {{ $injector }}, istio-ca-root-cert{{ with $v.sharedMeshConfig }}, {{ . }}{{ end }}]
  verbs: [list, watch]
{{- end }}
{{- if and $v.remoteClusters (eq .role "ingest") }}
- apiGroups: [""] # for other clusters, which Secrets of this namespace name: the leader gives their kubeconfigs to the other roles, sealed
  resources: [secrets]
  verbs: [list, watch]
{{- end }}
{{- end }}
