package inject

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	proxyconfigv1 "istio.io/api/networking/v1beta1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
)

// proxiesOf are ProxyConfigs by namespace, the oldest first, each as YAML.
func proxiesOf(t *testing.T, all map[string][]string) ProxyConfigs {
	t.Helper()
	parsed := map[string][]*proxyconfigv1.ProxyConfig{}
	for namespace, texts := range all {
		for _, text := range texts {
			c := &proxyconfigv1.ProxyConfig{}
			js, err := yaml.YAMLToJSON([]byte(text))
			if err == nil {
				err = protojson.Unmarshal(js, c)
			}
			if err != nil {
				t.Fatal(text, err)
			}
			parsed[namespace] = append(parsed[namespace], c)
		}
	}
	return func(namespace string) []*proxyconfigv1.ProxyConfig { return parsed[namespace] }
}

// The ProxyConfig that applies to a Pod of namespace shop with the label app: web, and its precedence over other
// settings.
func TestProxyConfigs(t *testing.T) {
	const mesh = `{"concurrency":7,"proxyMetadata":{"M":"mesh"}}`
	for name, c := range map[string]struct {
		all         map[string][]string
		annotations string
		image, want string // image without the mesh's setting of other fields
	}{
		"none":                    {nil, ``, "dev", mesh},
		"of another namespace":    {map[string][]string{"other": {"concurrency: 1", "{selector: {matchLabels: {app: web}}, concurrency: 2}"}}, ``, "dev", mesh},
		"of the mesh":             {map[string][]string{"istio-system": {"{concurrency: 1, environmentVariables: {A: root, M: root}, image: {imageType: debug}}"}}, ``, "dev-debug", `{"concurrency":1,"proxyMetadata":{"A":"root","M":"root"},"image":{"imageType":"debug"}}`},
		"one core is none":        {map[string][]string{"istio-system": {"concurrency: 0"}}, ``, "dev", `{"concurrency":0,"proxyMetadata":{"M":"mesh"}}`},
		"of both namespaces":      {map[string][]string{"istio-system": {"{concurrency: 1, environmentVariables: {A: root, B: root}}"}, "shop": {"environmentVariables: {B: shop}"}}, ``, "dev", `{"concurrency":1,"proxyMetadata":{"A":"root","B":"shop","M":"mesh"}}`},
		"the oldest":              {map[string][]string{"shop": {"concurrency: 1", "{concurrency: 2, environmentVariables: {A: b}}"}}, ``, "dev", `{"concurrency":1,"proxyMetadata":{"M":"mesh"}}`},
		"a selector of the root":  {map[string][]string{"istio-system": {"{selector: {matchLabels: {app: web}}, concurrency: 1}"}}, ``, "dev", mesh},
		"an empty selector":       {map[string][]string{"shop": {"{selector: {}, concurrency: 1}"}}, ``, "dev", mesh},
		"another selector":        {map[string][]string{"shop": {"{selector: {matchLabels: {app: api}}, concurrency: 1}", "{selector: {matchLabels: {app: web, v: x}}, concurrency: 1}"}}, ``, "dev", mesh},
		"the oldest that selects": {map[string][]string{"shop": {"{selector: {matchLabels: {app: web}}, concurrency: 1}", "{selector: {matchLabels: {app: web}}, concurrency: 2}", "concurrency: 3"}}, ``, "dev", `{"concurrency":1,"proxyMetadata":{"M":"mesh"}}`},
		"the annotation is over the namespace": {map[string][]string{"istio-system": {"environmentVariables: {C: root}"}, "shop": {"{concurrency: 1, environmentVariables: {A: shop, B: shop}}"}},
			`proxy.istio.io/config: "{concurrency: 2, proxyMetadata: {A: pod}}"`, "dev", `{"concurrency":2,"proxyMetadata":{"A":"pod","B":"shop","C":"root","M":"mesh"}}`},
		"what selects is over the annotation": {map[string][]string{"shop": {"{selector: {matchLabels: {app: web}}, concurrency: 1, environmentVariables: {A: kind}}"}},
			`proxy.istio.io/config: "{concurrency: 2, proxyMetadata: {A: pod, B: pod}}"`, "dev", `{"concurrency":1,"proxyMetadata":{"A":"kind","B":"pod","M":"mesh"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings(t)
			s.Proxies = proxiesOf(t, c.all)
			if err := annotatedMesh(s, mesh); err != nil {
				t.Fatal(err)
			}
			proxy := container(ProxyContainer, injectedPod(t, s, annotated(c.annotations)))
			if got := envOf(proxy, "PROXY_CONFIG"); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if want := "navarch/navarch-agent:" + c.image; proxy.Image != want {
				t.Errorf("image %s, want %s", proxy.Image, want)
			}
		})
	}
}

// annotatedMesh sets a mesh configuration with its own defaultConfig.
func annotatedMesh(s *Settings, defaultConfig string) error {
	s.Mesh = model.MeshDefaults()
	return protojson.Unmarshal([]byte(defaultConfig), s.Mesh.DefaultConfig)
}
