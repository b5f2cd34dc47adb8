// Command testcluster runs a Kubernetes cluster of processes until it is interrupted (`make cluster`).
//
// Owns: one cluster.  Reads: flags, .tools, bin.  Never: used in production.
package main

import (
	"context"
	"flag"
	"fmt"
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

// images are added to by --image name=program.
type images image.Table

func (i images) String() string { return fmt.Sprint(len(i)) }

func (i images) Set(s string) error {
	name, program, ok := strings.Cut(s, "=")
	path, err := filepath.Abs(program)
	if !ok || err != nil || name == "" {
		return fmt.Errorf("want name=program, got %q", s)
	}
	inside := "/usr/local/bin/" + filepath.Base(path)
	i[name] = image.Image{Programs: map[string]string{inside: path}, Entrypoint: []string{inside}}
	return nil
}

func run() error {
	o := cluster.Options{Images: image.Table{}}
	flag.IntVar(&o.Nodes, "nodes", 3, "How many nodes.")
	flag.BoolVar(&o.Istio, "istio", true, "Istio's CustomResourceDefinitions are there.")
	flag.BoolVar(&o.GatewayAPI, "gateway-api", true, "Those of the Gateway API are there.")
	flag.Var(images(o.Images), "image", "name=program: what an image stands for, may be repeated. Programs of bin/ are there by their names.")
	flag.Parse()
	built, err := filepath.Glob("bin/*")
	if err != nil {
		return err
	}
	for _, program := range built {
		if _, named := o.Images[filepath.Base(program)]; !named {
			if err := images(o.Images).Set(filepath.Base(program) + "=" + program); err != nil {
				return err
			}
		}
	}
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
