// Package mesh makes synthetic meshes from a seed, writes them as folders of YAML, and edits them file by file.
//
// Owns: the folder that it wrote.  Reads: push/xds (the names of resources).  Never: a server; a clock; chance (same
// settings, same bytes).
package mesh

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

// Settings are all that decides a mesh: equal settings give equal bytes, on every machine.
type Settings struct {
	Name       string `json:"name"`
	Seed       uint64 `json:"seed"`
	Services   int    `json:"services"`
	Namespaces int    `json:"namespaces"`
	// Zipf is the exponent of the namespaces' sizes: the n-th largest has a share of 1/n^Zipf. 0: all are equal.
	Zipf float64 `json:"zipf,omitempty"`
	Pods int     `json:"pods"` // of each service, one half of version v1, the other of v2
	// Zones is how many zones of one region the pods' nodes stand in; 0: there are no nodes.
	Zones int `json:"zones,omitempty"`
	// SidecarEvery gives every n-th namespace a Sidecar, which sees its own and SidecarSees other namespaces. 0: none.
	SidecarEvery int `json:"sidecarEvery,omitempty"`
	SidecarSees  int `json:"sidecarSees,omitempty"`
	PolicyEvery  int `json:"policyEvery,omitempty"` // every n-th workload has an AuthorizationPolicy; 0: none
	// VirtualServices and DestinationRules are for so many services, chosen by the seed; each rule has subsets v1 and v2,
	// and LocalityRules of them load-balance by locality as well.
	VirtualServices  int `json:"virtualServices,omitempty"`
	DestinationRules int `json:"destinationRules,omitempty"`
	LocalityRules    int `json:"localityRules,omitempty"`
	// Gateways is how many Gateways there are, each with one VirtualService bound to it.
	Gateways int  `json:"gateways,omitempty"`
	MTLS     bool `json:"mtls,omitempty"` // whether the world is measured over mTLS
	// Form is what services are written as: kubernetes (Service, Pod, EndpointSlice), or istio (ServiceEntry with the
	// endpoints in it), which istiod reads from a folder too.
	Form Form `json:"form,omitempty"`
}

// Form is how services are written.
type Form string

// The forms; the zero Form is Kubernetes.
const (
	Kubernetes Form = "kubernetes"
	Istio      Form = "istio"
)

//go:embed presets/*.yaml
var presets embed.FS

// preset gives committed settings by name.
func preset(name string) (Settings, error) {
	raw, err := presets.ReadFile("presets/" + name + ".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return Settings{}, fmt.Errorf("no preset %q: there are %s", name, strings.Join(Presets(), ", "))
	}
	if err != nil {
		return Settings{}, err
	}
	return parse(raw)
}

// Presets are the names of all committed settings, sorted.
func Presets() []string {
	entries, _ := presets.ReadDir("presets") // embedded: it is there
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	return names
}

// Load reads settings from a preset of that name or, where there is none, from a file of YAML. An error: there is no preset of a name
// without a dot and a slash, the file cannot be read, has fields that there are not, or settings that make no mesh.
func Load(nameOrFile string) (Settings, error) {
	if !strings.ContainsAny(nameOrFile, "./") {
		return preset(nameOrFile)
	}
	raw, err := os.ReadFile(nameOrFile)
	if err != nil {
		return Settings{}, fmt.Errorf("settings: %w", err)
	}
	return parse(raw)
}

func parse(raw []byte) (Settings, error) {
	var s Settings
	if err := yaml.UnmarshalStrict(raw, &s); err != nil {
		return Settings{}, fmt.Errorf("settings: %w", err)
	}
	return s, s.check()
}

// check refuses what makes no mesh; the message names the field.
func (s Settings) check() error {
	var wrong []error
	refuse := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf("settings: "+format, args...)) }
	for name, n := range map[string]int{"zones": s.Zones, "sidecarEvery": s.SidecarEvery, "sidecarSees": s.SidecarSees, "policyEvery": s.PolicyEvery,
		"virtualServices": s.VirtualServices, "destinationRules": s.DestinationRules, "localityRules": s.LocalityRules, "gateways": s.Gateways} {
		if n < 0 {
			refuse("%s: %d; want 0 or more", name, n)
		}
	}
	if s.Name == "" || strings.ContainsAny(s.Name, "/ ") {
		refuse("name: %q is no name", s.Name)
	}
	if s.Namespaces < 1 || s.Services < s.Namespaces {
		refuse("%d services over %d namespaces; want at least one in each, and a namespace", s.Services, s.Namespaces)
	}
	if s.Services > maxServices || s.Pods < 1 || s.Services*s.Pods > maxPods {
		refuse("%d services with %d pods each; want 1 to %d services, and 1 to %d pods in all", s.Services, s.Pods, maxServices, maxPods)
	}
	if s.Zipf < 0 || s.Zipf > 4 {
		refuse("zipf: %g; want 0 to 4", s.Zipf)
	}
	if s.SidecarSees >= s.Namespaces && s.SidecarEvery > 0 {
		refuse("sidecarSees: %d of %d other namespaces", s.SidecarSees, s.Namespaces-1)
	}
	if s.VirtualServices > s.Services || s.DestinationRules > s.Services {
		refuse("more virtualServices or destinationRules than services")
	}
	if s.LocalityRules > s.DestinationRules {
		refuse("localityRules: %d of %d destinationRules", s.LocalityRules, s.DestinationRules)
	}
	if s.Form != "" && s.Form != Kubernetes && s.Form != Istio {
		refuse("form: %q; want %s or %s", s.Form, Kubernetes, Istio)
	}
	return errors.Join(wrong...)
}

// The address plan has room for so much: 10.96.0.0/13 for services, 10.128.0.0/9 for pods and proxies.
const (
	maxServices = 1 << 18
	maxPods     = 1 << 21
)

// Scaled is the same mesh at another size: everything that counts objects is multiplied by f, and stays at least one
// where it was not zero. What every n-th has stays.
func (s Settings) Scaled(f float64) Settings {
	if f == 1 {
		return s
	}
	scale := func(n *int) {
		if *n > 0 {
			*n = max(1, int(math.Round(float64(*n)*f)))
		}
	}
	for _, n := range []*int{&s.Services, &s.Namespaces, &s.VirtualServices, &s.DestinationRules, &s.LocalityRules, &s.Gateways} {
		scale(n)
	}
	s.SidecarSees = min(s.SidecarSees, s.Namespaces-1) // all others keep their order: rounding is monotonous
	return s
}
