// Package injection has the files that the chart puts into the ConfigMap istio-sidecar-injector, for commands and tests: templates and values.
//
// Owns: these files.  Reads: nothing.  Never: anything of a cluster.
package injection

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Templates are the names of the templates; that of a file is the same.
var Templates = []string{"sidecar", "gateway", "grpc-agent", "grpc-simple"}

// Config is the ConfigMap's key config: the templates, with the policy enabled.
func Config() string {
	var out strings.Builder
	out.WriteString("policy: enabled\ndefaultTemplates: [sidecar]\nneverInjectSelector: []\nalwaysInjectSelector: []\ninjectedAnnotations: {}\ntemplates:\n")
	for _, name := range Templates {
		fmt.Fprintf(&out, "  %s: |\n    %s\n", name, strings.ReplaceAll(strings.TrimSpace(read(name)), "\n", "\n    "))
	}
	return out.String()
}

// Values is its key values.
func Values() string { return read("values") }

func read(name string) string {
	text, err := files.ReadFile(name + ".yaml")
	if err != nil {
		panic(fmt.Sprintf("%s is not embedded: %v", name, err)) // a name that is not among the files
	}
	return string(text)
}
