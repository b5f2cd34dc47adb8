// Package injection contains the files of the chart's ConfigMap istio-sidecar-injector, templates and values, for
// commands and tests.
//
// Owns: these files. Reads: nothing. Never: contacts a cluster.
package injection

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Templates are the names of the templates, which are also their files' names.
var Templates = []string{"sidecar", "gateway", "grpc-agent", "grpc-simple"}

// Config returns the ConfigMap's key config: the templates, with the injection policy enabled.
func Config() string {
	var out strings.Builder
	out.WriteString("policy: enabled\ndefaultTemplates: [sidecar]\nneverInjectSelector: []\nalwaysInjectSelector: " +
		"[]\ninjectedAnnotations: {}\ntemplates:\n")
	for _, name := range Templates {
		fmt.Fprintf(&out, "  %s: |\n    %s\n", name, strings.ReplaceAll(strings.TrimSpace(read(name)), "\n", "\n    "))
	}
	return out.String()
}

// Values returns the ConfigMap's key values.
func Values() string { return read("values") }

// read returns an embedded file.
func read(name string) string {
	text, err := files.ReadFile(name + ".yaml")
	if err != nil {
		panic(fmt.Sprintf("%s is not embedded: %v", name, err)) // a name without a file
	}
	return string(text)
}
