// Package image says which programs of this machine an image stands for: there is no registry and no image, and a table takes their place.
//
// Owns: nothing.  Reads: the table.  Never: pulls anything.
package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Image is what a container has of an image.
type Image struct {
	Programs   map[string]string // paths in the container to programs of the machine
	Entrypoint []string          // runs where a container names no command
	Cmd        []string          // its arguments, where the container has neither command nor arguments
	Env        map[string]string
	User       int64
	Dir        string
}

// Table maps names of images to what they stand for: names as Pods write them ("docker.io/istio/proxyv2"), or their last element alone ("proxyv2"),
// each without a digest, and without a tag unless images of one name differ by it ("proxyv2:1.31"); the most exact one counts.
type Table map[string]Image

// Product lists the programs of the images that an installation of Navarch runs; the first one is the entrypoint.
func Product() map[string][]string {
	return map[string][]string{"navarchd": {"navarchd", "navarchctl"}, "navarch-agent": {"navarch-agent", "envoy", "navarchctl"}, "etcd": {"etcd", "etcdctl", "etcdutl"}}
}

// Of makes a table of images from the names of their programs, the entrypoint first; local maps each name to the program on this machine. The error names a
// program that is missing.
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

// inside is the path of a program in its image.
func inside(program string) string { return "/usr/local/bin/" + program }

// Shell is the name of an image with nothing but the machine's own programs; it has no entrypoint.
const Shell = "shell"

// Find is the image of a name. The error says that the table has none, or that a program of it is not there.
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

// last is the last element of a name.
func last(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// Untagged is the name of an image without tag and digest.
func Untagged(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name
}

// Args is what a container of the image runs, before variables are expanded. An error: neither has a command or arguments.
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
