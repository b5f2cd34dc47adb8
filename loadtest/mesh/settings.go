// Package mesh generates synthetic meshes from a seed, writes them as folders of YAML, and edits them file by file.
//
// Owns: the folder that it wrote. Reads: push/xds (the names of resources). Never: contacts a server; depends on a
// clock or on chance (equal settings yield equal bytes).
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

// Settings determine a mesh completely: equal settings yield equal bytes on every machine.
type Settings struct {
	Name       string `json:"name"`
	Seed       uint64 `json:"seed"`
	Services   int    `json:"services"`
	Namespaces int    `json:"namespaces"`
	// Zipf is the exponent of the namespaces' sizes: the n-th largest has a share in proportion to 1/n^Zipf. 0: all are
	// equal.
	Zipf float64 `json:"zipf,omitempty"`
	Pods int     `json:"pods"` // of each service, half of version v1 and half of v2
	// Zones is the number of zones of one region in which the Pods' nodes are; 0: no nodes.
	Zones int `json:"zones,omitempty"`
	// SidecarEvery adds to every n-th namespace a Sidecar that sees its own and SidecarSees other namespaces; 0: no
	// Sidecars.
	SidecarEvery int `json:"sidecarEvery,omitempty"`
	SidecarSees  int `json:"sidecarSees,omitempty"`
	PolicyEvery  int `json:"policyEvery,omitempty"` // every n-th workload has an AuthorizationPolicy; 0: no policies
	// VirtualServices and DestinationRules are numbers of services with such a rule, which the seed selects. Each
	// DestinationRule has the subsets v1 and v2; LocalityRules of them also set load balancing by locality.
	VirtualServices  int `json:"virtualServices,omitempty"`
	DestinationRules int `json:"destinationRules,omitempty"`
	LocalityRules    int `json:"localityRules,omitempty"`
	// Gateways is the number of Gateways, each with one VirtualService.
	Gateways int `json:"gateways,omitempty"`
	// Routes is the number of VirtualServices of one host each that are bound to one gateway. Listeners is the number of
	// HTTPS servers over which they are dealt out, in a Gateway of each namespace; 0: one HTTP server has them all.
	Routes    int  `json:"routes,omitempty"`
	Listeners int  `json:"listeners,omitempty"`
	FrontPort int  `json:"frontPort,omitempty"` // of the HTTP server of the routes; 0: 80
	MTLS      bool `json:"mtls,omitempty"`      // the mesh is measured over mTLS
	// Form is the form of the services: kubernetes (Service, Pod, EndpointSlice), or istio (ServiceEntry with its
	// endpoints), which istiod can read from a folder.
	Form Form `json:"form,omitempty"`
}

// Form is the form of the services.
type Form string

// The forms; the zero Form is Kubernetes.
const (
	Kubernetes Form = "kubernetes"
	Istio      Form = "istio"
)

//go:embed presets/*.yaml
var presets embed.FS

// preset returns embedded settings by name.
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

// Presets returns the names of all presets, sorted.
func Presets() []string {
	entries, _ := presets.ReadDir("presets") // embedded, so it cannot fail
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	return names
}

// Load returns the preset of that name, or else the settings in a YAML file. Errors: there is no such preset (for a
// name without a dot and a slash), the file cannot be read, or it contains unknown fields or settings that are not
// valid.
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

// check returns an error that names all fields that are not valid.
func (s Settings) check() error {
	var wrong []error
	refuse := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf("settings: "+format, args...)) }
	for name, n := range map[string]int{"zones": s.Zones,
		"sidecarEvery": s.SidecarEvery, "sidecarSees": s.SidecarSees, "policyEvery": s.PolicyEvery,
		"virtualServices": s.VirtualServices, "destinationRules": s.DestinationRules, "localityRules": s.LocalityRules, "gateways": s.Gateways,
		"routes": s.Routes, "listeners": s.Listeners, "frontPort": s.FrontPort} {
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

// Limits of the address plan: 10.96.0.0/13 for services, 10.128.0.0/9 for Pods and proxies.
const (
	maxServices = 1 << 18
	maxPods     = 1 << 21
)

// Scaled returns the same mesh at another size: every number of objects is multiplied by f, and a positive number stays
// at least one. SidecarEvery and PolicyEvery stay as they are.
func (s Settings) Scaled(f float64) Settings {
	if f == 1 {
		return s
	}
	scale := func(n *int) {
		if *n > 0 {
			*n = max(1, int(math.Round(float64(*n)*f)))
		}
	}
	for _, n := range []*int{&s.Services, &s.Namespaces, &s.VirtualServices, &s.DestinationRules, &s.LocalityRules, &s.Gateways,
		&s.Routes, &s.Listeners} {
		scale(n)
	}
	s.SidecarSees = min(s.SidecarSees, s.Namespaces-1) // all other bounds still hold: rounding is monotonous
	return s
}
