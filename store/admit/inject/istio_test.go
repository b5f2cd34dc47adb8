package inject

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// istioStyle calls every function that templates of Istio's releases call, in their manner: the names of the data,
// pipes, flow mappings with a comma at their end, fields that Pods do not have, an emptyDir that is null.
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
    drain: "{{ formatDuration .ProxyConfig.DrainDuration }} {{ directory "/etc/certs/ca.pem" }} {{ kubevirtInterfaces "tap0" }} {{ excludeInterfaces "eth1" }}",
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

// The ConfigMap of an installation of Istio is usable: its templates for other objects than Pods, the line of an older
// program, and unknown values do no harm.
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
	if got := c.Problems(); got != nil {
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
		out.Annotations["networks"]:                                            `[{"name": "own"}, {"name": "istio-cni"}]`,
		out.Annotations["missing"]:                                             "<no value><no value>",
		out.Annotations["drain"]:                                               "5s /etc/certs/ tap0 eth1",
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
	if _, err := (&Settings{Config: secret}).Inject(t.Context(), Request{Pod: podOf(t, simplePod)}); err == nil || !strings.Contains(err.Error(), "DATABASE_PASSWORD") {
		t.Errorf("%v", err)
	}
}

// Functions and fields that templates of Istio 1.32 have beside those of earlier releases: with one unknown, a
// ConfigMap of that release could not be read.
func TestTemplatesOfIstio132(t *testing.T) {
	const template = `
metadata:
  annotations:
    joined: {{ toJsonMap (omit .ObjectMeta.Annotations "mine") (strdict "a" "b" "last") (mergeMaps (strdict "c" "d") (strdict "c" "e")) | quote }}
    sprigs: {{ omit (dict "a" 1 "b" 2) "a" | toJson | quote }}
    attributes: {{ otelResourceAttributes .MeshConfig .ObjectMeta.Annotations .ObjectMeta.Labels .DeploymentMeta.Namespace .Spec.Containers | quote }}
spec:
  initContainers:
  - {name: istio-init, image: {{ .ProxyInitImage }}}
  containers:
  - name: istio-proxy
    image: {{ .ProxyImage }}
    {{- if .CompliancePolicy }}
    env:
    - {name: COMPLIANCE_POLICY, value: "{{ .CompliancePolicy }}"}
    {{- end }}
`
	for _, c := range []struct{ proxy, init, policy, want string }{
		{"proxyv2", "", "", "hub/proxyv2:1-debug hub/proxyv2:1-debug " + absentValue},
		{"other", "initial", "fips-140-3", "hub/other:1-debug hub/initial:1-debug fips-140-3"},
		{"registry/proxy:2", "", "fips-140-2", "hub/registry/proxy:2:1-debug hub/proxyv2:1-debug fips-140-2"},
	} {
		config := "policy: enabled\ntemplates:\n  sidecar: |" + strings.ReplaceAll(template, "\n", "\n    ")
		values := fmt.Sprintf(`{"global": {"hub": "hub", "tag": "1", "variant": "debug", "proxy": {"image": %q}, "proxy_init": {"image": %q}}}`, c.proxy, c.init)
		env := map[string]string{"COMPLIANCE_POLICY": c.policy}
		parsed, err := ParseConfig(source, config, values, func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		s := &Settings{Config: parsed, Mesh: enriched()}
		pod := podOf(t, "metadata: {name: web-0, annotations: {mine: x, other: z}}\nspec: {containers: [{name: app, image: web}]}")
		out := injectTwice(t, s, Request{Pod: pod, Namespace: "shop"})
		proxy := nth(t, out, ProxyContainer)
		if got := words(proxy.Image, nth(t, out, initContainer).Image, envOf(proxy, "COMPLIANCE_POLICY")); got != c.want {
			t.Errorf("%+v: %s, want %s", c, got, c.want)
		}
		if got := words(out.Annotations["joined"], out.Annotations["sprigs"], out.Annotations["attributes"]); got !=
			`{"a":"b","c":"e","last":"","other":"z"} {"b":2} service.namespace=shop,service.instance.id=shop.$(POD_NAME).app` {
			t.Errorf("%s", got)
		}
	}
}

// enriched is a mesh with a provider of traces that describes services by OpenTelemetry's conventions.
func enriched() *meshv1alpha1.MeshConfig {
	return &meshv1alpha1.MeshConfig{ExtensionProviders: []*meshv1alpha1.MeshConfig_ExtensionProvider{{Name: "otel", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_Opentelemetry{
		Opentelemetry: &meshv1alpha1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider{ServiceAttributeEnrichment: meshv1alpha1.MeshConfig_ExtensionProvider_OTEL_SEMANTIC_CONVENTIONS},
	}}}}
}

// Networks of Multus in both forms: the JSON form has the namespace apart.
func TestAppendMultusNetwork(t *testing.T) {
	for list, want := range map[string]string{
		"":                      "default/istio-cni",
		"own":                   "own, default/istio-cni",
		"own,default/istio-cni": "own,default/istio-cni",
		`[]`:                    `[{"name": "istio-cni", "namespace": "default"}]`,
		`[{"name": "own"}, {"name": "more", "namespace": "kube-system", "ips": ["10.0.0.1"]}]`: `[{"name": "own"}, {"name": "more", "namespace": "kube-system", "ips": ["10.0.0.1"]}, {"name": "istio-cni", "namespace": "default"}]`,
		`[{"name": "istio-cni"}]`:                         `[{"name": "istio-cni"}, {"name": "istio-cni", "namespace": "default"}]`,
		`[{"namespace": "default", "name": "istio-cni"}]`: `[{"namespace": "default", "name": "istio-cni"}]`,
		`[{"name": 5}]`:                                   "error", `]`: "error", `[[]]`: "error",
	} {
		got, err := appendMultusNetwork(list, "default/istio-cni")
		if err == nil && want == "error" || err != nil && want != "error" || err == nil && got != want {
			t.Errorf("%s: %s, %v, want %s", list, got, err, want)
		}
	}
}

// For any list of networks, the result is a list of the same form that contains the network, and does not change when
// the network is added again.
func FuzzAppendMultusNetwork(f *testing.F) {
	for _, list := range []string{"", "a,b", `[]`, `[{"name": "a"}]`, `[{"name":"istio-cni","namespace":"default"}] `, "]", " [null] "} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		out, err := appendMultusNetwork(list, "default/istio-cni")
		if err != nil {
			return
		}
		if again, err := appendMultusNetwork(out, "default/istio-cni"); err != nil || again != out {
			t.Errorf("%q: %q, then %q, %v", list, out, again, err)
		}
	})
}

func TestOtelResourceAttributes(t *testing.T) {
	annotated := func(values ...string) metav1.ObjectMeta {
		meta := metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{"app.kubernetes.io/version": "v1"}, Annotations: map[string]string{}}
		for i := 0; i < len(values); i += 2 {
			meta.Annotations["resource.opentelemetry.io/"+values[i]] = values[i+1]
		}
		return meta
	}
	app := corev1.Container{Name: "app", Image: "registry:5000/web:2@sha256:aa"}
	proxy := corev1.Container{Name: ProxyContainer}
	for _, c := range []struct {
		mesh *meshv1alpha1.MeshConfig
		of   []any
		want string
	}{
		{nil, []any{annotated()}, ""},
		{&meshv1alpha1.MeshConfig{ExtensionProviders: []*meshv1alpha1.MeshConfig_ExtensionProvider{{Name: "a"}}}, []any{annotated()}, ""},
		{enriched(), []any{annotated(), corev1.PodSpec{Containers: []corev1.Container{proxy, app}}}, "service.namespace=shop,service.version=v1,service.instance.id=shop.$(POD_NAME).app"},
		{enriched(), []any{annotated("service.namespace", "a,b", "service.version", "2=3", "service.instance.id", "x")}, "service.namespace=a%2Cb,service.version=2%3D3,service.instance.id=x"},
		{enriched(), []any{map[string]string(nil), map[string]string(nil), "ns", []corev1.Container{app}}, "service.namespace=ns,service.version=2@sha256:aa,service.instance.id=ns.$(POD_NAME).app"},
		{enriched(), []any{map[string]string(nil), map[string]string(nil), "", []corev1.Container{app, {Name: "more"}}}, "service.instance.id=$(POD_NAME)"},
		{enriched(), []any{5}, "error"},
		{enriched(), []any{map[string]string(nil)}, "error"},
	} {
		got, err := otelResourceAttributes(c.mesh, c.of...)
		if err == nil && c.want == "error" || err != nil && c.want != "error" || err == nil && got != c.want {
			t.Errorf("%v: %s, %v, want %s", c.of, got, err, c.want)
		}
	}
	for image, want := range map[string]string{"web": "", "web:1": "1", "registry:5000/web": "", "web@sha256:a": "sha256:a", "": ""} {
		if got := versionOfImage(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
	given := settings(t)
	given.Mesh = enriched()
	for s, want := range map[*Settings]string{settings(t): absentValue, given: "service.namespace=shop,service.instance.id=shop.$(POD_NAME).app"} {
		if got := envOf(nth(t, injectedPod(t, s, simplePod), ProxyContainer), "OTEL_RESOURCE_ATTRIBUTES"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
