// Command testcluster runs a Kubernetes cluster of processes until it is interrupted (`make cluster`).
//
// Owns: one cluster. Reads: flags, .tools, bin. Never: runs in production.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/deploy/testcluster/image"
)

func main() {
	cluster.Init()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "testcluster:", err)
		os.Exit(1)
	}
}

// given are the images of the flag --image name=program.
type given image.Table

func (g given) String() string { return fmt.Sprint(len(g)) }

func (g given) Set(s string) error {
	name, program, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return fmt.Errorf("want name=program, got %q", s)
	}
	return g.add(name, program)
}

// add adds an image with one program.
func (g given) add(name, program string) error {
	base := filepath.Base(program)
	one, err := image.Of(map[string][]string{name: {base}}, map[string]string{base: program})
	maps.Copy(g, one)
	return err
}

// images returns the product's images, and for every other program in bin an image with its name. top is the folder of
// the repository.
func images(top string) (image.Table, error) {
	tools := filepath.Join(top, ".tools", "bin")
	local := map[string]string{"envoy": cmp.Or(os.Getenv("NAVARCH_ENVOY"), filepath.Join(tools, "envoy"))}
	for _, name := range []string{"etcdctl", "etcdutl"} {
		local[name] = filepath.Join(tools, name)
	}
	built, err := filepath.Glob(filepath.Join(top, "bin", "*"))
	if err != nil {
		return nil, err
	}
	all := given{}
	for _, program := range built {
		name := filepath.Base(program)
		local[name] = program
		if err := all.add(name, program); err != nil {
			return nil, err
		}
	}
	product, err := image.Of(image.Product(), local)
	if err != nil {
		return nil, fmt.Errorf("run this by `make cluster`, which builds the programs: %w", err)
	}
	maps.Copy(all, product)
	return image.Table(all), nil
}

func run() error {
	o, more := cluster.Options{}, given{}
	flag.IntVar(&o.Nodes, "nodes", 3, "How many nodes.")
	flag.BoolVar(&o.Istio, "istio", true, "Istio's CustomResourceDefinitions are there.")
	flag.BoolVar(&o.GatewayAPI, "gateway-api", true, "Those of the Gateway API are there.")
	flag.Var(more, "image",
		"name=program: one more image with one program, may be repeated. Those of the product, and programs of bin/ by their names, are there.")
	flag.Parse()
	var err error
	if o.Images, err = images("."); err != nil {
		return err
	}
	maps.Copy(o.Images, more)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Printf("export KUBECONFIG=%s\n", c.Kubeconfig())
	select {
	case <-ctx.Done():
		return nil
	case <-c.Ended():
		return fmt.Errorf("the cluster ended by itself:\n%s", c.Log())
	}
}
