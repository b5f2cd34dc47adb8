package main

import (
	"crypto/rand"
	"embed"
	"encoding/base64"
	"fmt"
	"strings"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// manifest is one of the files, with names replaced by values: pairs of them.
func manifest(name string, replaced ...string) string {
	text, err := manifests.ReadFile("manifests/" + name + ".yaml")
	if err != nil {
		panic(err) // it is part of the program
	}
	return strings.NewReplacer(replaced...).Replace(string(text))
}

// workload is a Deployment of the shop, with two Pods.
type workload struct{ name, app, version string }

var workloads = []workload{{"web", "web", "v1"}, {"ratings", "ratings", "v1"}, {"reviews-v1", "reviews", "v1"}, {"reviews-v2", "reviews", "v2"}}

func (w workload) manifest() string {
	return manifest("workload", "THE-NAME", w.name, "THE-APP", w.app, "THE-VERSION", w.version)
}

// kek is the Secret of the key encryption key, a new one.
func kek() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // crypto/rand does not fail
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: navarch-kek, namespace: istio-system}\ndata: {kek.key: %s}\n", base64.StdEncoding.EncodeToString(key))
}

// subset is the VirtualService that sends everything to one version of reviews.
func subset(version string) string { return manifest("reviews", "THE-SUBSET", version) }
