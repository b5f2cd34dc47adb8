package inject

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/store/model"
)

const source = "ConfigMap istio-system/istio-sidecar-injector"

// settings are the chart's, with texts of the key config, or of values, replaced: old, new, old, new.
func settings(t testing.TB, edits ...string) *Settings {
	t.Helper()
	return settingsOf(t, injection.Config(), injection.Values(), edits...)
}

func settingsOf(t testing.TB, config, values string, edits ...string) *Settings {
	t.Helper()
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(config, edits[i]) && !strings.Contains(values, edits[i]) {
			t.Fatalf("%q is neither in the configuration nor in the values", edits[i])
		}
		config, values = strings.Replace(config, edits[i], edits[i+1], 1), strings.Replace(values, edits[i], edits[i+1], 1)
	}
	c, err := ParseConfig(source, config, values, nil)
	if err != nil {
		t.Fatal(err)
	}
	texts[c] = [2]string{config, values}
	return &Settings{Config: c, Mesh: model.MeshDefaults(), Namespace: "istio-system"}
}

// texts contains the texts from which configurations were parsed.
var texts = map[*Config][2]string{}

func with(t testing.TB, s *Settings, edits ...string) *Settings {
	t.Helper()
	return settingsOf(t, texts[s.Config][0], texts[s.Config][1], edits...)
}

func podOf(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

const simplePod = `
apiVersion: v1
kind: Pod
metadata: {name: web-0, labels: {app: web}}
spec: {containers: [{name: app, image: web}]}
`
