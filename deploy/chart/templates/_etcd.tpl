{{- /* Of a Service that no proxy is configured for: no sidecar has listeners and clusters of etcd. Those of navarchd, which gateways of networks lead to, are exported as istiod's is. */}}
{{- define "navarch.ofNoProxy" -}}
annotations:
  networking.istio.io/exportTo: "~"
{{- end }}

{{- /* The addresses of etcd's members, with commas between them. */}}
{{- define "navarch.etcdEndpoints" -}}
{{- if .Values.etcd.endpoints }}{{ join "," .Values.etcd.endpoints }}
{{- else }}
{{- $name := include "navarch.etcd" . }}
{{- $all := list }}
{{- range until 3 }}{{ $all = append $all (printf "https://%s-%d.%s-peers.%s.svc:2379" $name . $name $.Release.Namespace) }}{{ end }}
{{- join "," $all }}
{{- end }}
{{- end }}

{{- /* The name of the Secret by which etcd is verified, and clients verify themselves; empty: there is no TLS. */}}
{{- define "navarch.etcdTLS" -}}
{{- if .Values.etcd.tls.secretName }}{{ .Values.etcd.tls.secretName }}
{{- else if not .Values.etcd.endpoints }}{{ include "navarch.etcd" . }}-client
{{- end }}
{{- end }}

{{- /* The flags of etcdctl that every command needs. */}}
{{- define "navarch.etcdctl" -}}
- --cacert=/etc/etcd/tls/{{ .Values.etcd.tls.ca }}
- --cert=/etc/etcd/tls/{{ .Values.etcd.tls.cert }}
- --key=/etc/etcd/tls/{{ .Values.etcd.tls.key }}
{{- end }}

{{- /* The rest of a CronJob that runs etcdctl: a dict of root, args (YAML) and snapshots, whether it has their volume. */}}
{{- define "navarch.etcdCronJob" -}}
concurrencyPolicy: Forbid
{{- if .root.Values.etcd.own.restore }}
suspend: true
{{- end }}
successfulJobsHistoryLimit: 1
failedJobsHistoryLimit: 1
jobTemplate:
  spec:
    {{- include "navarch.etcdJob" . | nindent 4 }}
{{- end }}

{{- /* The spec of a Job that runs etcdctl once, of the same; with until it begins again until that is done. With member, the name of one, it is etcdutl instead, which
asks nobody, with that member's volume. */}}
{{- define "navarch.etcdJob" -}}
{{- if .until }}
backoffLimit: 10000
{{- else }}
backoffLimit: 2
activeDeadlineSeconds: 900
{{- end }}
template:
  metadata:
    labels:
      app.kubernetes.io/name: navarch-etcd-maintenance
      app.kubernetes.io/instance: {{ .root.Release.Name }}
      sidecar.istio.io/inject: "false"
  spec:
    restartPolicy: {{ ternary "OnFailure" "Never" (default false .until) }}
    automountServiceAccountToken: false
    securityContext:
      {{- include "navarch.podSecurity" .root | nindent 6 }}
    {{- include "navarch.placement" .root | nindent 4 }}
    containers:
    - name: {{ ternary "etcdutl" "etcdctl" (hasKey . "member") }}
      image: {{ .root.Values.etcd.own.image }}
      command: [{{ ternary "etcdutl" "etcdctl" (hasKey . "member") }}]
      args:
      {{- .args | nindent 6 }}
      {{- if not .member }}
      {{- include "navarch.etcdctl" .root | nindent 6 }}
      {{- end }}
      resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 256Mi}}
      securityContext:
        {{- include "navarch.containerSecurity" .root | nindent 8 }}
      volumeMounts:
      {{- if .member }}
      - {name: data, mountPath: /var/lib/etcd}
      {{- else }}
      - {name: tls, mountPath: /etc/etcd/tls, readOnly: true}
      {{- end }}
      {{- if .snapshots }}
      - {name: snapshots, mountPath: /snapshots}
      {{- end }}
    volumes:
    {{- if .member }}
    - {name: data, persistentVolumeClaim: {claimName: data-{{ .member }}}}
    {{- else }}
    - {name: tls, secret: {secretName: {{ include "navarch.etcdTLS" .root }}, defaultMode: 0440}}
    {{- end }}
    {{- if .snapshots }}
    - {name: snapshots, persistentVolumeClaim: {claimName: {{ include "navarch.etcd" .root }}-snapshots}}
    {{- end }}
{{- end }}

{{- /* What makes the members one cluster, in the same words for etcd itself and for a member that is restored: a dict of root and member, its name. With another folder
the cluster has another id, so that what is left of the one before, as a member that has not ended yet, is no part of it (etcd.io: Disaster recovery). */}}
{{- define "navarch.etcdCluster" -}}
{{- $name := include "navarch.etcd" .root }}
{{- $peers := list }}
{{- range until 3 }}{{ $peers = append $peers (printf "%s-%d=https://%s-%d.%s-peers.%s.svc:2380" $name . $name . $name $.root.Release.Namespace) }}{{ end -}}
{{- $folder := .root.Values.etcd.own.dataFolder -}}
- --name={{ .member }}
- --data-dir=/var/lib/etcd/{{ $folder }}
- --initial-advertise-peer-urls=https://{{ .member }}.{{ $name }}-peers.{{ .root.Release.Namespace }}.svc:2380
- --initial-cluster={{ join "," $peers }}
- --initial-cluster-token={{ .root.Release.Namespace }}-{{ $name }}{{ if ne $folder "data" }}-{{ $folder }}{{ end }}
{{- end }}
