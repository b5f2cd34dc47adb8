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

{{- /* Refuses what values add to a Pod under a name that the chart has there, or twice: an API server would, by the Pod's fields, or would take the last one. */}}
{{- define "navarch.checkPods" -}}
{{- $names := dict }}
{{- range .Values.volumes }}
  {{- if or (hasKey $names .name) (regexMatch "^(state|token|etcd|etcd-auth|serving|(kms|kek)(-[0-9]+)?)$" .name) }}{{ fail (printf "volumes: the name %s is there already" .name) }}{{ end }}
  {{- $_ := set $names .name true }}
{{- end }}
{{- range .Values.volumeMounts }}
  {{- if not (hasKey $names .name) }}{{ fail (printf "volumeMounts: %s is no name of volumes" .name) }}{{ end }}
{{- end }}
{{- $names = dict "discovery" true "kms" true }}
{{- range .Values.initContainers }}
  {{- if hasKey $names .name }}{{ fail (printf "initContainers: the name %s is there already" .name) }}{{ end }}
  {{- $_ := set $names .name true }}
{{- end }}
{{- $names = deepCopy (.Values.env | default dict) }}
{{- range .Values.envVarFrom }}
  {{- if hasKey $names .name }}{{ fail (printf "envVarFrom: the variable %s is there already, in env or here" .name) }}{{ end }}
  {{- $_ := set $names .name true }}
{{- end }}
{{- end }}

{{- /* A value as text: whole numbers without an exponent. */}}
{{- define "navarch.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{- /* Whom etcd takes a client for, as YAML: the Secrets of its certificate (tls) and of its password (auth), and its user. A dict of root and, for a Deployment's
processes, entry: those of etcd.byDeployment are before those of all. */}}
{{- define "navarch.etcdClient" -}}
{{- $own := dict }}
{{- with .entry }}{{ $own = get ($.root.Values.etcd.byDeployment | default dict) (.name | default "istiod") | default dict }}{{ end }}
{{- $etcd := .root.Values.etcd }}
tls: {{ $own.tlsSecretName | default (include "navarch.etcdTLS" .root) }}
auth: {{ $own.authSecretName | default $etcd.auth.secretName }}
user: {{ $own.user | default $etcd.auth.user }}
{{- end }}

{{- /* Refuses clients of etcd for Deployments that there are not, and for an etcd of the chart's, which has no users. */}}
{{- define "navarch.checkEtcdClients" -}}
{{- $names := list }}
{{- range include "navarch.deployments" . | fromYamlArray }}
  {{- if not (include "navarch.admitsAlone" .) }}{{ $names = append $names (.name | default "istiod") }}{{ end }}
{{- end }}
{{- range $name, $_ := .Values.etcd.byDeployment }}
  {{- if not $.Values.etcd.endpoints }}{{ fail "etcd.byDeployment is for an etcd of yours (etcd.endpoints): that of the chart has no users" }}{{ end }}
  {{- if not (has $name $names) }}{{ fail (printf "etcd.byDeployment: no Deployment that needs etcd has the name %s, there are: %s" $name (join ", " $names)) }}{{ end }}
{{- end }}
{{- end }}

{{- /* Where the mesh is kept, and by what it is opened: flags of navarchd and of `navarchctl store`, one in a line. A dict, as for navarch.etcdClient. */}}
{{- define "navarch.etcdFlags" -}}
{{- $etcd := .root.Values.etcd }}
{{- $client := include "navarch.etcdClient" . | fromYaml }}
--mesh={{ .root.Values.mesh }}
--etcd-endpoints={{ include "navarch.etcdEndpoints" .root }}
{{- if $client.tls }}
--etcd-ca=/etc/navarch/etcd/{{ $etcd.tls.ca }}
{{- if $etcd.tls.cert }}
--etcd-cert=/etc/navarch/etcd/{{ $etcd.tls.cert }}
--etcd-key=/etc/navarch/etcd/{{ $etcd.tls.key }}
{{- end }}
{{- end }}
{{- if $client.auth }}
--etcd-user={{ $client.user }}
--etcd-password-file=/etc/navarch/etcd-auth/{{ $etcd.auth.passwordKey }}
{{- end }}
{{- end }}

{{- /* The files that these flags name: mounts, and volumes, of the same dict. */}}
{{- define "navarch.etcdMounts" -}}
{{- $client := include "navarch.etcdClient" . | fromYaml }}
{{- if $client.tls }}
- {name: etcd, mountPath: /etc/navarch/etcd, readOnly: true}
{{- end }}
{{- if $client.auth }}
- {name: etcd-auth, mountPath: /etc/navarch/etcd-auth, readOnly: true}
{{- end }}
{{- end }}

{{- define "navarch.etcdVolumes" -}}
{{- $client := include "navarch.etcdClient" . | fromYaml }}
{{- with $client.tls }}
- {name: etcd, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with $client.auth }}
- {name: etcd-auth, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{- /* The key encryption keys, the one that wraps first, as a YAML list of secretName and key; none with a KMS. */}}
{{- define "navarch.keks" -}}
{{- $kek := .Values.kek }}
{{- $all := list (dict "secretName" $kek.secretName "key" $kek.key) }}
{{- if $kek.kms.enabled }}
  {{- if $kek.others }}{{ fail "kek.others: a KMS changes its keys by itself (kek.kms.enabled)" }}{{ end }}
  {{- $all = list }}
{{- end }}
{{- range $kek.others }}
  {{- $one := dict "secretName" .secretName "key" (.key | default $kek.key) }}
  {{- if has $one $all }}{{ fail (printf "kek.others: key %s of Secret %s is there twice" $one.key $one.secretName) }}{{ end }}
  {{- $all = append $all $one }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{- /* The folder of a key encryption key, by its place in that list. */}}
{{- define "navarch.kekFolder" -}}
/etc/navarch/kek{{ if . }}-{{ . }}{{ end }}
{{- end }}

{{- /* The flags of navarchd that follow from the values, one in a line: a dict of root and entry. */}}
{{- define "navarch.flags" -}}
{{- $v := .root.Values }}
--roles={{ join "," .entry.roles }}
--registries=Kubernetes
{{- if not (include "navarch.admitsAlone" .entry) }}
{{ include "navarch.etcdFlags" . | trim }}
{{- $files := list }}
{{- range $i, $one := include "navarch.keks" .root | fromYamlArray }}{{ $files = append $files (printf "%s/%s" (include "navarch.kekFolder" $i) $one.key) }}{{ end }}
--kek={{ if $v.kek.kms.enabled }}kms:/var/run/kms/{{ $v.kek.kms.socket }}{{ else }}file:{{ join "," $files }}{{ end }}
{{- else if eq $v.issuer.kind "own" }}
--ca-peers={{ if include "navarch.caApart" .root }}{{ include "navarch.caService" .root }}{{ else }}{{ include "navarch.service" .root }}{{ end }}.{{ .root.Release.Namespace }}.svc:15012
{{- end }}
{{- if and (has "ca" .entry.roles) (eq $v.issuer.kind "own") }}
--control-plane-accounts={{ include "navarch.admitAccounts" .root }}
{{- end }}
--state-dir=/var/lib/navarch
--cluster-id={{ $v.clusterName }}
--domain={{ $v.clusterDomain }}
--trust-domain={{ $v.trustDomain }}
--shutdown-duration={{ $v.shutdownSeconds }}s
{{- if and $v.plaintext (has "xds" .entry.roles) }}
--grpc-addr=:15010
{{- end }}
{{- include "navarch.issuerFlags" . }}
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
{{- include "navarch.issuerEnvironment" . }}
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
{{- with $v.envVarFrom }}
{{ toYaml . }}
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
