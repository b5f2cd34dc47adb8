package inject

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestDocument(t *testing.T) {
	template := "{metadata: {labels: {app: web}}, spec: {unheardOf: 1, containers: [{name: app, image: web, alsoUnheardOf: {a: 1}, readinessProbe: {httpGet: {path: /, port: 80}}}]}}"
	s := settings(t)
	for kind, text := range map[string]string{
		"Pod":                   "{apiVersion: v1, kind: Pod, " + template[1:],
		"Deployment":            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {more: 1, template: " + template + "}\nstatus: {a: b}",
		"StatefulSet":           "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: web}\nspec: {template: " + template + "}",
		"DaemonSet":             "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: web}\nspec: {template: " + template + "}",
		"ReplicaSet":            "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\nspec: {template: " + template + "}",
		"ReplicationController": "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: web}\nspec: {template: " + template + "}",
		"Job":                   "apiVersion: batch/v1\nkind: Job\nmetadata: {name: web}\nspec: {template: " + template + "}",
		"CronJob":               "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: web}\nspec: {schedule: x, jobTemplate: {metadata: {labels: {a: b}}, spec: {template: " + template + "}}}",
		"List":                  "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Service, unheardOf: 1}, {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: " + template + "}}]",
	} {
		out, notes, err := s.Document([]byte(text), false)
		if err != nil || notes != nil {
			t.Errorf("%s: %v, %v", kind, notes, err)
			continue
		}
		got := string(out)
		for _, want := range []string{"istio-proxy", "istio-init", "unheardOf: 1", "alsoUnheardOf", "path: /app-health/app/readyz"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s is not in\n%s", kind, want, got)
			}
		}
		if workload := map[string]string{"List": "apis/apps/v1/namespaces/default/deployments/web", "CronJob": "apis/batch/v1/namespaces/default/cronjobs/web", "Deployment": "apis/apps/v1/namespaces/shop/deployments/web"}[kind]; !strings.Contains(got, workload) {
			t.Errorf("%s: owner %s is not in\n%s", kind, workload, got)
		}
		again, _, err := s.Document(out, false)
		if err != nil || string(again) != got {
			t.Errorf("%s: injected again it is\n%s\n%v", kind, again, err)
		}
		if strings.Contains(got, "creationTimestamp") || kind == "Deployment" && (!strings.Contains(got, "more: 1") || !strings.Contains(got, "a: b")) {
			t.Errorf("%s:\n%s", kind, got)
		}
	}
}

func TestDocumentLeftAsItIs(t *testing.T) {
	s := settings(t)
	for text, note := range map[string]string{
		"# only a comment\n": "",
		"a: 1 # no object":   "",
		"apiVersion: v1\nkind: Service # stays\nspec: {template: {spec: {containers: []}}}\n":                                                                 "",
		"apiVersion: example.com/v1\nkind: Deployment\nspec: {template: {spec: {containers: [{name: a}]}}}\n":                                                 "",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {hostNetwork: true, containers: [{name: a}]}}}\n":              "Deployment default/web gets no proxy. The Pod has the network of its node",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: kube-system}\nspec: {containers: [{name: a}]}\n":                                           "Pod kube-system/p gets no proxy.",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {sidecar.istio.io/inject: \"false\"}} # mine\nspec: {containers: [{name: a}]}\n":              "Pod default/p gets no proxy. The Pod has the label",
		"apiVersion: batch/v1\nkind: JobList\nitems: [{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {hostNetwork: true}}}}]": "Job default/j gets no proxy.",
	} {
		out, notes, err := s.Document([]byte(text), false)
		if err != nil || string(out) != text || strings.Join(notes, "") != "" && note == "" || !strings.HasPrefix(strings.Join(notes, ""), note) {
			t.Errorf("%q:\n%q, %q, %v", text, out, notes, err)
		}
	}
	for text, want := range map[string]string{
		"a: [": "yaml",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}":                                  "Deployment default/web has no spec.template",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: 5}}}": "Deployment default/web: json",
		strings.Repeat("{kind: List, items: [", 9) + strings.Repeat("]}", 9):                                      "Lists in Lists",
	} {
		if _, _, err := s.Document([]byte(text), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Fields that the encoder writes and authors leave out, such as a container's resources, get the template's values.
func TestDocumentWithOwnContainers(t *testing.T) {
	for name, spec := range map[string]string{
		"proxy":           "{containers: [{name: istio-proxy, image: auto, env: [{name: EXTRA, value: '1'}]}, {name: app, image: x}]}",
		"proxy as init":   "{initContainers: [{name: istio-proxy, image: auto}], containers: [{name: app, image: x}]}",
		"redirection":     "{initContainers: [{name: istio-init, image: auto}], containers: [{name: app, image: x}]}",
		"with resources":  "{containers: [{name: istio-proxy, image: auto, resources: {}}, {name: app, image: x, resources: {}}]}",
		"without a spec":  "",
		"of null":         "{containers: null}",
		"nulls elsewhere": "{initContainers: null, volumes: null, containers: [{name: app, image: x, resources: null}]}",
	} {
		for _, native := range []bool{false, true} {
			text := "apiVersion: v1\nkind: Pod\nmetadata: {name: app}\n"
			if spec != "" {
				text += "spec: " + spec + "\n"
			}
			out, _, err := settings(t).Document([]byte(text), native)
			if err != nil {
				t.Errorf("%s, native %t: %v", name, native, err)
				continue
			}
			var pod corev1.Pod
			if err := yaml.UnmarshalStrict(out, &pod); err != nil {
				t.Fatal(err)
			}
			for _, one := range []string{ProxyContainer, initContainer} {
				if c := nth(t, &pod, one); c.Resources.Requests.Cpu().String() != "100m" || c.Image == "auto" {
					t.Errorf("%s, native %t: %s has image %s, resources %v", name, native, one, c.Image, c.Resources)
				}
			}
		}
	}
}
