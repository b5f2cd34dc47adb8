// Package image maps names of images to programs of this machine, in place of a registry and of images.
//
// Owns: nothing. Reads: the table. Never: pulls an image.
package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Image describes the programs and settings of an image.
type Image struct {
	Programs   map[string]string // programs of the machine by paths in the container
	Entrypoint []string          // the command of containers without one
	Cmd        []string          // its arguments, for containers with neither command nor arguments
	Env        map[string]string
	User       int64
	Dir        string
}

// Table maps names of images to their content. A name is either complete ("docker.io/istio/proxyv2") or the last
// element only ("proxyv2"). It has no digest, and a tag only if images of one name differ by it ("proxyv2:1.31"). The
// most specific name wins.
type Table map[string]Image

// Product returns the programs of the images of an installation of Navarch, by image; the first one is the entrypoint.
func Product() map[string][]string {
	return map[string][]string{"navarchd": {"navarchd", "navarchctl"},
		"navarch-agent": {"navarch-agent", "envoy", "navarchctl"}, "etcd": {"etcd", "etcdctl", "etcdutl"}}
}

// Of returns a table of images from the names of their programs, the entrypoint first; local maps each name to the
// program on this machine. The error names a missing program.
func Of(images map[string][]string, local map[string]string) (Table, error) {
	t := Table{}
	for name, programs := range images {
		one := Image{Programs: map[string]string{}, Entrypoint: []string{inside(programs[0])}}
		for _, program := range programs {
			path, err := filepath.Abs(local[program])
			if _, missing := os.Stat(local[program]); err == nil {
				err = missing
			}
			if err != nil {
				return nil, fmt.Errorf("image %q: program %q: %w", name, program, err)
			}
			one.Programs[inside(program)] = path
		}
		t[name] = one
	}
	return t, nil
}

// inside returns the path of a program in its image.
func inside(program string) string { return "/usr/local/bin/" + program }

// Shell is the name of an image with the machine's own programs only; it has no entrypoint.
const Shell = "shell"

// Find returns the image with a name. The error reports that the table does not contain it, or that one of its programs
// is missing.
func (t Table) Find(name string) (Image, error) {
	untagged := Untagged(name)
	tagged, _, _ := strings.Cut(name, "@")
	var i Image
	ok := untagged == Shell
	for _, key := range []string{last(untagged), untagged, last(tagged), tagged} {
		if found, there := t[key]; there {
			i, ok = found, true
		}
	}
	if !ok {
		return Image{}, fmt.Errorf("the table of images has no %q", untagged)
	}
	for _, local := range i.Programs {
		if _, err := os.Stat(local); err != nil {
			return Image{}, fmt.Errorf("image %q: %w", untagged, err)
		}
	}
	return i, nil
}

// last returns the last element of a name.
func last(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// Untagged returns the name of an image without tag and digest.
func Untagged(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name
}

// Args returns the command line of a container of the image, before variables are expanded. The error reports that
// neither of the two has a command.
func (i Image) Args(command, args []string) ([]string, error) {
	all := append([]string{}, command...)
	if len(command) == 0 {
		all = append(all, i.Entrypoint...)
		if len(args) == 0 {
			args = i.Cmd
		}
	}
	if all = append(all, args...); len(all) == 0 {
		return nil, fmt.Errorf("neither the container nor its image has a command")
	}
	return all, nil
}
