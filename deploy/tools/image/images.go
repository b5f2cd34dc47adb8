package main

import (
	"debug/elf"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image is one of Navarch's images.
type image struct {
	name, description string
	programs          []string // static; the first one is the entrypoint
	folders           []string // folders that its user writes to if nothing is mounted
	envoy             bool     // contains Envoy, so it is made only for architectures with an Envoy
}

var images = []image{
	{name: "navarchd", description: "Control plane for Istio meshes, and its operator's tool",
		programs: []string{"navarchd", "navarchctl"}, folders: []string{"/var/lib/navarch"}},
	{name: "navarch-agent", description: "Sidecar of a Navarch mesh: agent and Envoy; init container that redirects traffic",
		programs: []string{"navarch-agent"},
		folders:  []string{"/etc/istio/proxy", "/var/lib/istio/data"}, envoy: true},
	{name: "navarch-cni", description: "CNI plugin that redirects the traffic of a mesh's Pods", programs: []string{"navarch-cni"}},
}

var architectures = []string{"amd64", "arm64"}

const (
	user       = 1337 // the user of Istio's images, whose traffic is not redirected
	sbomFolder = "/usr/local/share/sbom/"
)

// write writes the layout: one image index for each image, named REPOSITORY/NAME:VERSION. The error names the image and
// architecture.
func write(o options, folder string) error {
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	base, err := baseTree().layer(o.created)
	if err != nil {
		return err
	}
	for _, i := range images {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, arch := range architectures {
			beside, has := o.trees[arch]
			if i.envoy && !has {
				continue
			}
			made, err := i.assemble(o, arch, base, beside)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", i.name, arch, err)
			}
			index = mutate.AppendManifests(index,
				mutate.IndexAddendum{Add: made, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		}
		annotated := mutate.Annotations(index, i.labels(o)).(v1.ImageIndex)
		name := o.repository + "/" + i.name + ":" + o.version
		// The second name is the one under which containerd imports the image.
		if err := to.AppendIndex(annotated,
			layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name,
				"io.containerd.image.name": qualified(name)})); err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
	}
	return nil
}

// qualified returns an image's name in containerd's form. The first part is a registry if it contains a dot or a port
// or is localhost; otherwise Docker's registry is added (github.com/distribution/reference).
func qualified(name string) string {
	if first, _, _ := strings.Cut(name, "/"); strings.ContainsAny(first, ".:") || first == "localhost" {
		return name
	}
	return "docker.io/" + name
}

// assemble returns the image for one architecture. Files that rarely change are in a layer of their own.
func (i image) assemble(o options, arch string, base v1.Layer, envoy tree) (v1.Image, error) {
	own := tree{}
	for _, folder := range i.folders {
		own[folder] = file{folder: true, mode: 0o755, uid: user}
	}
	for _, program := range i.programs {
		from := filepath.Join(o.programs, arch, program)
		if err := static(from, arch); err != nil {
			return nil, err
		}
		own["/usr/local/bin/"+program] = file{from: from, mode: 0o755}
		list, err := listed(from + ".cdx.json")
		if err != nil {
			return nil, err
		}
		own[sbomFolder+program+".cdx.json"] = file{body: list, mode: 0o644}
	}
	layers := []v1.Layer{base}
	trees := []tree{own}
	if i.envoy {
		trees = []tree{envoy, own}
	}
	for _, t := range trees {
		layer, err := t.layer(o.created)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	made := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, layer := range layers {
		var err error
		if made, err = mutate.Append(made,
			mutate.Addendum{Layer: layer, History: v1.History{Created: o.created, CreatedBy: "make image"}}); err != nil {
			return nil, err
		}
	}
	config, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, o.created
	config.Config = v1.Config{User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{"/usr/local/bin/" + i.programs[0]}, WorkingDir: "/",
		Env: []string{"PATH=/usr/local/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"}, Labels: i.labels(o)}
	if made, err = mutate.ConfigFile(made, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(made, i.labels(o)).(v1.Image), nil
}

// labels returns the labels of https://specs.opencontainers.org/image-spec/annotations, for the configuration and the
// manifests.
func (i image) labels(o options) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title": i.name, "org.opencontainers.image.description": i.description,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.version":  o.version, "org.opencontainers.image.revision": o.revision,
		"org.opencontainers.image.created": o.created.UTC().Format("2006-01-02T15:04:05Z"),
	}
}

// baseTree returns the common files of all images: users, a folder for temporary files, and the roots that browsers
// trust.
func baseTree() tree {
	var roots []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil { // PEM cannot express a constraint
			roots = append(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	return tree{
		"/etc/passwd": {body: fmt.Appendf(nil,
			"root:x:0:0:root:/:/sbin/nologin\nistio-proxy:x:%d:%d:istio-proxy:/:/sbin/nologin\n", user, user), mode: 0o644},
		"/etc/group":                         {body: fmt.Appendf(nil, "root:x:0:\nistio-proxy:x:%d:\n", user), mode: 0o644},
		"/etc/ssl/certs/ca-certificates.crt": {body: roots, mode: 0o644},
		"/tmp":                               {folder: true, mode: 0o1777},
	}
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// static returns an error for a program of another architecture, or one that needs libraries, which the images do not
// have.
func static(path, arch string) error {
	program, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer program.Close()
	if program.Machine != machines[arch] {
		return fmt.Errorf("%s is for %s", path, program.Machine)
	}
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static (CGO_ENABLED=0)", path)
		}
	}
	return nil
}
