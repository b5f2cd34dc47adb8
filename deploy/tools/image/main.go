// Command image writes Navarch's container images as one OCI image layout from built programs, without a container
// runtime, a registry or a base image. Equal inputs yield equal bytes.
//
// It is a separate module, so that its dependencies are not Navarch's.
//
// Owns: the folder of the layout. Reads: programs, lists of their components, C libraries. Never: uses the network.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	var o options
	flag.StringVar(&o.out, "out", "", "Folder of the layout, which must not exist.")
	flag.StringVar(&o.programs, "programs", "",
		"Folder of the programs: ARCHITECTURE/NAME, and what NAME was made of: ARCHITECTURE/NAME.cdx.json.")
	flag.Func("envoy",
		"Envoy of this machine's architecture; then, maybe, PATH=ROOT: the same version for another one, and below the folder ROOT "+
			"that one's C library.", func(v string) error {
			o.envoys = append(o.envoys, v)
			return nil
		})
	flag.StringVar(&o.repository, "repository", "navarch", "Prefix of the images' names: registry and repository.")
	flag.StringVar(&o.version, "version", "", "Version of the images: their tag.")
	flag.StringVar(&o.revision, "revision", "", "Commit that they were built from.")
	created := flag.Int64("created", 0, "When they were made, as seconds since 1970: the time of the commit, so that two builds are equal.")
	flag.Parse()
	o.created = v1.Time{Time: time.Unix(*created, 0).UTC()}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// options are the inputs of the images.
type options struct {
	out, programs                 string
	envoys                        []string
	repository, version, revision string
	created                       v1.Time
	trees                         map[string]tree // Envoy with its libraries, by architecture
}

var tag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// run writes the layout into a temporary folder, and renames it once it is complete. Errors name the flag.
func run(o options) error {
	if !tag.MatchString(o.version) {
		return fmt.Errorf("--version %q is no tag of an image", o.version)
	}
	if _, err := os.Stat(o.out); err == nil {
		return fmt.Errorf("--out %s exists", o.out)
	}
	if err := o.readEnvoys(); err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Dir(o.out), ".image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(made) }()
	if err := os.Chmod(made, 0o755); err != nil {
		return err
	}
	if err := write(o, made); err != nil {
		return err
	}
	return os.Rename(made, o.out)
}

var envoyVersion = regexp.MustCompile(`version: [0-9a-f]+/([^/]+)/`)

// readEnvoys reads version and libraries of each Envoy. One for another architecture cannot run here, so its version is
// that of the previous one.
func (o *options) readEnvoys() error {
	version := ""
	for _, one := range o.envoys {
		path, root, foreign := strings.Cut(one, "=")
		if !foreign {
			said, err := exec.Command(path, "--version").Output()
			if err != nil {
				return fmt.Errorf("--envoy %s: %w", one, err)
			}
			found := envoyVersion.FindSubmatch(said)
			if found == nil {
				return fmt.Errorf("--envoy %s: no version in %q", one, said)
			}
			version = string(found[1])
		}
		if version == "" {
			return fmt.Errorf("--envoy %s: name the Envoy of this machine first: it says the version", one)
		}
		arch, files, err := envoy(path, root, version)
		if err != nil {
			return fmt.Errorf("--envoy %s: %w", one, err)
		}
		if _, had := o.trees[arch]; had {
			return fmt.Errorf("--envoy %s: it is for %s, as the one before", one, arch)
		}
		if o.trees == nil {
			o.trees = map[string]tree{}
		}
		o.trees[arch] = files
	}
	return nil
}

// envoy returns the architecture of an Envoy and its files: the program, the C library below root, and the list of
// both.
func envoy(path, root, version string) (arch string, files tree, err error) {
	libraries, arch, err := libraries(path, root)
	if err != nil {
		return "", nil, err
	}
	components := []component{{Type: "application", Name: "envoy", Version: version, from: path}}
	files = tree{"/usr/local/bin/envoy": {from: path, mode: 0o755}}
	for at, file := range libraries {
		files[at] = file
		components = append(components, component{Type: "library", Name: filepath.Base(at), Version: libcVersion(file.from), from: file.from})
	}
	list, err := bill(components)
	files[sbomFolder+"envoy.cdx.json"] = file{body: list, mode: 0o644}
	return arch, files, err
}
