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
successfulJobsHistoryLimit: 1
failedJobsHistoryLimit: 1
jobTemplate:
  spec:
    {{- include "navarch.etcdJob" . | nindent 4 }}
{{- end }}

{{- /* The spec of a Job that runs etcdctl once, of the same; with until it begins again until that is done. */}}
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
    - name: etcdctl
      image: {{ .root.Values.etcd.own.image }}
      command: [etcdctl]
      args:
      {{- .args | nindent 6 }}
      {{- include "navarch.etcdctl" .root | nindent 6 }}
      resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 256Mi}}
      securityContext:
        {{- include "navarch.containerSecurity" .root | nindent 8 }}
      volumeMounts:
      - {name: tls, mountPath: /etc/etcd/tls, readOnly: true}
      {{- if .snapshots }}
      - {name: snapshots, mountPath: /snapshots}
      {{- end }}
    volumes:
    - {name: tls, secret: {secretName: {{ include "navarch.etcdTLS" .root }}, defaultMode: 0440}}
    {{- if .snapshots }}
    - {name: snapshots, persistentVolumeClaim: {claimName: {{ include "navarch.etcd" .root }}-snapshots}}
    {{- end }}
{{- end }}
