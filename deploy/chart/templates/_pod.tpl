{{- /* Parts of Pods. */}}

{{- /* Pod security: profile restricted. Files of Secrets are the group's to read: the user is not root. */}}
{{- define "navarch.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.runAsUser }}
runAsGroup: {{ .Values.runAsUser }}
fsGroup: {{ .Values.runAsUser }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "navarch.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Pods of one set on different nodes and in different zones, as far as there are some: a dict of root and selector (YAML). */}}
{{- define "navarch.spread" -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- $.selector | nindent 6 }}
{{- end }}
{{- end }}

{{- define "navarch.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A value as text: whole numbers without an exponent. */}}
{{- define "navarch.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{- /* The flags of navarchd that follow from the values, one in a line: a dict of root and entry. */}}
{{- define "navarch.flags" -}}
{{- $v := .root.Values }}
--roles={{ join "," .entry.roles }}
--registries=Kubernetes
--etcd-endpoints={{ include "navarch.etcdEndpoints" .root }}
{{- if include "navarch.etcdTLS" .root }}
--etcd-ca=/etc/navarch/etcd/{{ $v.etcd.tls.ca }}
{{- if $v.etcd.tls.cert }}
--etcd-cert=/etc/navarch/etcd/{{ $v.etcd.tls.cert }}
--etcd-key=/etc/navarch/etcd/{{ $v.etcd.tls.key }}
{{- end }}
{{- end }}
{{- with $v.etcd.auth.secretName }}
--etcd-user={{ $v.etcd.auth.user }}
--etcd-password-file=/etc/navarch/etcd-auth/{{ $v.etcd.auth.passwordKey }}
{{- end }}
--kek={{ if $v.kek.kms.enabled }}kms:/var/run/kms/{{ $v.kek.kms.socket }}{{ else }}file:/etc/navarch/kek/{{ $v.kek.key }}{{ end }}
--state-dir=/var/lib/navarch
--mesh={{ $v.mesh }}
--cluster-id={{ $v.clusterName }}
--domain={{ $v.clusterDomain }}
--trust-domain={{ $v.trustDomain }}
--shutdown-duration={{ $v.shutdownSeconds }}s
{{- if and $v.plaintext (has "xds" .entry.roles) }}
--grpc-addr=:15010
{{- end }}
{{- if $v.tokenReview }}
--token-review
{{- end }}
{{- range $name, $value := $v.flags }}
--{{ $name }}={{ include "navarch.scalar" $value }}
{{- end }}
{{- end }}

{{- /* The environment of navarchd. */}}
{{- define "navarch.environment" -}}
{{- $v := .root.Values }}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: SERVICE_ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
- {name: NAVARCH_ZONE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}}
- {name: REVISION, value: {{ include "navarch.revision" .root | quote }}}
- {name: PILOT_ENABLE_STATUS, value: {{ $v.status | quote }}}
- {name: PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION, value: {{ $v.machines | quote }}}
- {name: PILOT_ENABLE_IP_AUTOALLOCATE, value: {{ $v.automaticAddresses | quote }}}
{{- with $v.sharedMeshConfig }}
- {name: SHARED_MESH_CONFIG, value: {{ . | quote }}}
{{- end }}
{{- if and (include "navarch.caApart" .root) (has "ca" .entry.roles) }}
- {name: ISTIOD_CUSTOM_HOST, value: {{ printf "%s.%s.svc" (include "navarch.caService" .root) .root.Release.Namespace | quote }}}
{{- else if $v.customHost }}
- {name: ISTIOD_CUSTOM_HOST, value: {{ $v.customHost | quote }}}
{{- end }}
{{- range $name, $value := $v.env }}
- {name: {{ $name }}, value: {{ include "navarch.scalar" $value | quote }}}
{{- end }}
{{- end }}

{{- define "navarch.ports" -}}
{{- if and .root.Values.plaintext (has "xds" .entry.roles) }}
- {name: grpc-xds, containerPort: 15010}
{{- end }}
{{- if has "xds" .entry.roles }}
- {name: https-dns, containerPort: 15012}
{{- else if has "ca" .entry.roles }}
- {name: https-ca, containerPort: 15012}
{{- end }}
{{- if has "admit" .entry.roles }}
- {name: https-webhooks, containerPort: 15017}
{{- end }}
- {name: http-monitoring, containerPort: 15014}
- {name: http, containerPort: 8080}
{{- end }}
