package inject

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// istioStyle calls every function that templates of Istio's releases call, in their manner: the names of the data, pipes, flow mappings with a comma at their
// end, fields that Pods do not have, an emptyDir that is null.
const istioStyle = `
{{- define "resources" }}
  {{- if isset .ObjectMeta.Annotations ` + "`sidecar.istio.io/proxyCPU`" + ` }}
      requests:
        cpu: "{{ index .ObjectMeta.Annotations ` + "`sidecar.istio.io/proxyCPU`" + ` }}"
  {{- else if .Values.global.proxy.resources }}
      {{ toYaml (omitNil .Values.global.proxy.resources) | indent 6 }}
  {{- end }}
{{- end }}
{{- $containers := list }}
{{- range $index, $container := .Spec.Containers }}{{ if not (eq $container.Name "istio-proxy") }}{{ $containers = append $containers $container.Name }}{{end}}{{- end}}
metadata:
  labels:
    name: {{ index .ObjectMeta.Labels ` + "`service.istio.io/canonical-name`" + ` | default (index .ObjectMeta.Labels ` + "`app`" + `) | default .DeploymentMeta.Name | trunc 63 | trimSuffix "-" | quote }}
  annotations: {
    istio.io/rev: {{ .Revision | default "default" | quote }},
    {{- if ge (len $containers) 1 }}
    kubectl.kubernetes.io/default-container: "{{ index $containers 0 }}",
    {{- end }}
    networks: '{{ appendMultusNetwork (index .ObjectMeta.Annotations ` + "`networks`" + `) ` + "`istio-cni`" + ` }}',
    missing: "{{ .Values.istio_cni.enabled }}{{ .Values.global.absent.deeper }}",
    ports: "{{ excludeInboundPort (annotation .ObjectMeta ` + "`status.sidecar.istio.io/port`" + ` .Values.global.proxy.statusPort) (annotation .ObjectMeta ` + "`none`" + ` "22, 15020") }} {{ applicationPorts .Spec.Containers }} {{ includeInboundPorts .Spec.Containers }}",
    drain: "{{ formatDuration .ProxyConfig.DrainDuration }} {{ directory "/etc/certs/ca.pem" }} {{ kubevirtInterfaces "tap0" }}",
  }
spec:
  {{- $hold := or .ProxyConfig.HoldApplicationUntilProxyStarts.GetValue .Values.global.proxy.hold }}
  initContainers:
  - name: istio-init
    args: ["-u", "{{ .ProxyUID | default "1337" }}", "-p", {{ .MeshConfig.ProxyListenPort | default "15001" | quote }}, "{{ .InboundTrafficPolicyMode }}", "{{ $hold }}"]
  containers:
  - name: istio-proxy
  {{- if contains "/" (annotation .ObjectMeta ` + "`sidecar.istio.io/proxyImage`" + ` .Values.global.proxy.image) }}
    image: "{{ annotation .ObjectMeta ` + "`sidecar.istio.io/proxyImage`" + ` .Values.global.proxy.image }}"
  {{- else }}
    image: "{{ .ProxyImage }}"
  {{- end }}
    {{- if gt .EstimatedConcurrency 0 }}
    args: [--concurrency]
    {{- end }}
    securityContext:
      fsGroup: 1337
      runAsUser: {{ .ProxyUID }}
    resources:
  {{ template "resources" . }}
    env:
    {{- if eq (env "PILOT_ENABLE_INBOUND_PASSTHROUGH" "true") "false" }}
    - name: LEGACY
      value: "true"
    {{- end }}
    - name: PROXY_CONFIG
      value: |
             {{ protoToJSON .ProxyConfig }}
    - name: ISTIO_META_POD_PORTS
      value: |-
        [
        {{- $first := true }}
        {{- range $index1, $c := .Spec.Containers }}
          {{- range $index2, $p := $c.Ports }}
            {{- if (structToJSON $p) }}
            {{if not $first}},{{end}}{{ structToJSON $p }}
            {{- $first = false }}
            {{- end }}
          {{- end}}
        {{- end}}
        ]
    - name: ISTIO_META_APP_CONTAINERS
      value: "{{ $containers | join "," }}"
    - name: ISTIO_META_OWNER
      value: kubernetes://apis/{{ .TypeMeta.APIVersion }}/namespaces/{{ valueOrDefault .DeploymentMeta.Namespace ` + "`default`" + ` }}/{{ toLower .TypeMeta.Kind}}s/{{ .DeploymentMeta.Name }}
    - name: ISTIO_METAJSON_LABELS
      value: |
             {{ toJSON .ObjectMeta.Labels }}
    {{- range $key, $value := .ProxyConfig.ProxyMetadata }}
    - name: {{ $key }}
      value: "{{ $value }}"
    {{- end }}
    {{- range $index, $value := fromJSON (index .ObjectMeta.Annotations ` + "`sidecar.istio.io/userVolumeMount`" + `) }}
    - name: "{{ $index }}"
      {{ toYaml $value | indent 6 }}
    {{- end }}
  volumes:
  - emptyDir:
    name: workload-socket
  {{- if eq .Values.global.jwtPolicy "third-party-jwt" }}
  - name: istio-token
    projected:
      sources:
      - serviceAccountToken:
          path: istio-token
          expirationSeconds: 43200
          audience: {{ .Values.global.sds.token.aud }}
  {{- end }}
`

// The ConfigMap that an installation of Istio has goes on: its templates for other things than Pods, the line that tells of an older program, and values that
// this program knows nothing of do no harm.
func TestConfigMapOfIstio(t *testing.T) {
	config := "# defaultTemplates defines the default template\ndefaultTemplates: [sidecar]\npolicy: enabled\nalwaysInjectSelector:\n  []\nneverInjectSelector:\n  []\ninjectedAnnotations:\n" +
		"template: \"{{ Template_Version_And_Istio_Version_Mismatched_Check_Installation }}\"\ntemplates:\n  sidecar: |" + strings.ReplaceAll(istioStyle, "\n", "\n    ") +
		"\n  waypoint: |\n    apiVersion: v1\n    metadata: {annotations: {{ toJsonMap (omit .InfrastructureAnnotations \"a\") }}}\n"
	values := `{"global": {"hub": "docker.example/istio", "tag": 1.29, "jwtPolicy": "third-party-jwt", "sds": {"token": {"aud": "istio-ca"}}, "proxy": {"image": "proxyv2", "statusPort": 15020, "resources": {"limits": {"cpu": "2", "memory": null}, "requests": {"cpu": null}, "claims": [null]}}, "waypoint": {}},
		"sidecarInjectorWebhook": {"rewriteAppHTTPProbe": true}, "gateways": {}, "revision": ""}`
	c, err := ParseConfig(source, config, values, func(string) string { return "false" })
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Problems(); len(got) != 1 || !strings.Contains(got[0].Error(), "templates.waypoint") {
		t.Errorf("problems: %v", got)
	}
	s := &Settings{Config: c, Mesh: &meshv1alpha1.MeshConfig{ProxyListenPort: 15001, DefaultConfig: &meshv1alpha1.ProxyConfig{DrainDuration: durationpb.New(5e9), ProxyMetadata: map[string]string{"A": "b"}}}}
	pod := podOf(t, `
metadata: {name: web-0, labels: {app: web}, annotations: {sidecar.istio.io/userVolumeMount: '{"USER": {"value": "1"}}', networks: '[{"name": "own"}]'}}
spec: {containers: [{name: app, image: web, ports: [{containerPort: 80}, {containerPort: 53, protocol: UDP}]}]}`)
	out := injectTwice(t, s, Request{Pod: pod, Namespace: "shop"})
	proxy := nth(t, out, ProxyContainer)
	for got, want := range map[string]string{
		proxy.Image: "docker.example/istio/proxyv2:1.29",
		strings.Join(nth(t, out, initContainer).Args, " "):                     "-u 1337 -p 15001 passthrough <no value>",
		out.Annotations["ports"]:                                               "22, 15020 80 80",
		out.Annotations["networks"]:                                            `[{"name": "own"}, {"name":"istio-cni"}]`,
		out.Annotations["missing"]:                                             "<no value><no value>",
		out.Annotations["drain"]:                                               "5s /etc/certs/ tap0",
		strings.TrimSpace(envOf(proxy, "PROXY_CONFIG")):                        `{"drainDuration":"5s","proxyMetadata":{"A":"b"}}`,
		strings.Join(strings.Fields(envOf(proxy, "ISTIO_META_POD_PORTS")), ""): `[{"containerPort":80},{"containerPort":53,"protocol":"UDP"}]`,
		envOf(proxy, "ISTIO_META_OWNER"):                                       "kubernetes://apis/v1/namespaces/shop/pods/web-0",
		strings.TrimSpace(envOf(proxy, "ISTIO_METAJSON_LABELS")):               `{"app":"web"}`,
		fmt.Sprint(envOf(proxy, "A"), envOf(proxy, "USER"), envOf(proxy, "LEGACY"), len(out.Spec.Volumes)): "b1true2",
		string(encoded(t, proxy.Resources)): `{"limits":{"cpu":"2"}}`,
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	secret, err := ParseConfig(source, "policy: enabled\ntemplates: {sidecar: '{{ env \"DATABASE_PASSWORD\" \"\" }}'}", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&Settings{Config: secret}).Inject(Request{Pod: podOf(t, simplePod)}); err == nil || !strings.Contains(err.Error(), "DATABASE_PASSWORD") {
		t.Errorf("%v", err)
	}
}
