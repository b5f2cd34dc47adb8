package preview

import (
	"fmt"
	"strings"

	"navarch.io/navarch/push/view"
)

// Scope limits a plan to some proxies. The zero Scope has all proxies of the mesh.
type Scope struct {
	Namespace string // namespace of the proxies; empty: all namespaces
	Proxy     string // NAME.NAMESPACE of the one proxy; empty: all proxies
}

// ParseScope parses "mesh", "namespace NAME" and "proxy NAME.NAMESPACE". An empty text means the mesh.
// The error contains any other text, and these forms.
func ParseScope(text string) (Scope, error) {
	word, name, _ := strings.Cut(strings.TrimSpace(text), " ")
	name = strings.TrimSpace(name)
	dot := strings.LastIndexByte(name, '.')
	switch {
	case name == "" && (word == "mesh" || word == ""):
		return Scope{}, nil
	case word == "namespace" && name != "" && !strings.ContainsAny(name, " ./"):
		return Scope{Namespace: name}, nil
	case word == "proxy" && dot > 0 && dot < len(name)-1 && !strings.ContainsAny(name, " /"):
		return Scope{Proxy: name}, nil
	}
	return Scope{}, fmt.Errorf("scope %.60q: want mesh, \"namespace NAME\" or \"proxy NAME.NAMESPACE\"", text)
}

// has reports whether a proxy is in the scope.
func (s Scope) has(n *view.Node) bool {
	return (s.Namespace == "" || s.Namespace == n.Namespace) && (s.Proxy == "" || s.Proxy == n.Name+"."+n.Namespace)
}
