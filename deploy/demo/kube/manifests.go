package main

import (
	"embed"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/model"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// manifest returns one of the files with placeholders replaced: pairs of placeholder and value.
func manifest(name string, replaced ...string) string {
	text, err := manifests.ReadFile("manifests/" + name + ".yaml")
	if err != nil {
		panic(err) // embedded, so it cannot fail
	}
	return strings.NewReplacer(replaced...).Replace(string(text))
}

// workload is a Deployment of the shop with two Pods.
type workload struct{ name, app, version string }

var workloads = []workload{{"web", "web", "v1"},
	{"ratings", "ratings", "v1"}, {"reviews-v1", "reviews", "v1"}, {"reviews-v2", "reviews", "v2"}}

func (w workload) manifest() string {
	return manifest("workload", "THE-NAME", w.name, "THE-APP", w.app, "THE-VERSION", w.version)
}

// secret returns the manifest of a Secret.
func secret(namespace, name string, data map[string][]byte) string {
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\ndata:\n", name, namespace)
	for key, value := range data {
		fmt.Fprintf(&text, "  %s: %s\n", key, base64.StdEncoding.EncodeToString(value))
	}
	return text.String()
}

// subset returns the VirtualService that routes all requests to one version of reviews.
func subset(version string) string { return manifest("reviews", "THE-SUBSET", version) }

// stock injects a manifest of one document with the layout of Istio's own agent in Istio's image, as a sidecar
// container.
func stock(document string) (string, error) {
	values := strings.NewReplacer("agent: navarch", "agent: istio", "hub: navarch",
		"hub: docker.io/istio", "image: navarch-agent", "image: proxyv2").Replace(injection.Values())
	config, err := inject.ParseConfig("the chart", injection.Config(), values, os.Getenv)
	if err != nil {
		return "", err
	}
	settings := inject.Settings{Config: config, Mesh: model.MeshDefaults(), Namespace: "istio-system"}
	laidOut, notes, err := settings.Document([]byte(document), true)
	if err == nil && len(notes) > 0 {
		err = fmt.Errorf("no proxy: %s", strings.Join(notes, " "))
	}
	return string(laidOut), err
}
