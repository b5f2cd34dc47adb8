package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/dump"
	"navarch.io/navarch/store/source/files"
)

// completionPatience is the time limit for listing names while a shell waits for them.
const completionPatience = 2 * time.Second

// completion is cobra's type of functions that complete an argument or the value of a flag.
type completion = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// offer returns a completion. It calls the function list, and offers the returned names that begin with the typed text.
// If list fails, it offers nothing.
func offer(list func(ctx context.Context, cmd *cobra.Command, args []string) ([]string, error)) completion {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		ctx := cmd.Context()
		if ctx == nil { // cobra sets no context for the completion of a command that does not run
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionPatience)
		defer cancel()
		all, err := list(ctx, cmd, args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all = slices.DeleteFunc(all, func(n string) bool { return n == "" || !strings.HasPrefix(n, begun) })
		slices.Sort(all)
		return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
	}
}

// offerFirst is like offer, but completes only the first argument of a command.
func offerFirst(list func(ctx context.Context, cmd *cobra.Command, args []string) ([]string, error)) completion {
	return offer(func(ctx context.Context, cmd *cobra.Command, args []string) ([]string, error) {
		if len(args) > 0 {
			return nil, nil
		}
		return list(ctx, cmd, args)
	})
}

// completesBy sets the completion of a flag, which must be defined.
func completesBy(cmd *cobra.Command, flag string, by completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err) // only if the flag is not defined
	}
}

// completes offers a closed set of words for a flag.
func completes(cmd *cobra.Command, flag string, words ...string) {
	completesBy(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// complete offers the names of the connected proxies for the first argument. It offers nothing if no replica answers.
// With --namespace it offers the proxies of that namespace, without the namespace in their names.
func (t *target) complete(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return offerFirst(func(ctx context.Context, _ *cobra.Command, _ []string) ([]string, error) {
		all, err := t.connected(ctx)
		if err != nil || t.namespace == "" {
			return all, err
		}
		var own []string
		for _, proxy := range all {
			if name, is := strings.CutSuffix(proxy, "."+t.namespace); is {
				own = append(own, name)
			}
		}
		return own, nil
	})(cmd, args, begun)
}

// completesProxies sets the completion of flags to the connected proxies, or to file names with --config-dir.
func (q *walks) completesProxies(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		completesBy(cmd, flag, q.target.proxiesOrFiles(&q.offline))
	}
}

// proxiesOrFiles offers the connected proxies. With --config-dir it offers file names, because a proxy is then named by
// the file of its node.
func (t *target) proxiesOrFiles(from *offline) completion {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		if from.configDir != "" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return t.complete(cmd, nil, begun)
	}
}

// resourcesOf lists the names of the resources that a proxy was sent.
func (t *target) resourcesOf(ctx context.Context, proxy string) (names []string, err error) {
	if proxy, err = t.resolve(ctx, proxy); err != nil {
		return nil, err
	}
	raw, err := t.configOf(ctx, proxy, "")
	if err != nil {
		return nil, err
	}
	d, err := dump.Read(raw)
	if err != nil {
		return nil, err
	}
	for _, of := range d.Resources {
		for _, r := range of {
			names = append(names, r.Name)
		}
	}
	return names, nil
}

// completeFlags sets the completion of flags that have the same meaning in all commands, for cmd and the commands below
// it. For commands without arguments it turns off the completion of file names.
func completeFlags(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		completeFlags(sub)
	}
	for flag, by := range map[string]completion{
		"context": offer(func(_ context.Context, cmd *cobra.Command, _ []string) ([]string, error) {
			return cluster.Contexts(cmd.Flag("kubeconfig").Value.String()), nil
		}),
		"namespace": offer(namespaces), "istio-namespace": offer(namespaces),
		"revision": offer(revisions), "control-plane-revision": offer(revisions),
	} {
		f := cmd.LocalFlags().Lookup(flag)
		if _, set := cmd.GetFlagCompletionFunc(flag); f != nil && f.Value.Type() == "string" && !set && cmd.InheritedFlags().Lookup(flag) == nil {
			completesBy(cmd, flag, by)
		}
	}
	if cmd.ValidArgsFunction == nil && cmd.Args != nil && cmd.Args(cmd, []string{"word"}) != nil && cmd.Args(cmd, nil) == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
}

// stated returns the value of a flag, or "" if the command does not have the flag.
func stated(cmd *cobra.Command, flag string) string {
	if f := cmd.Flag(flag); f != nil {
		return f.Value.String()
	}
	return ""
}

// selectedCluster returns the cluster that the flags of a command select.
func selectedCluster(cmd *cobra.Command) *cluster.Flags {
	return &cluster.Flags{Kubeconfig: stated(cmd, "kubeconfig"), Context: stated(cmd, "context"), Namespace: stated(cmd, "istio-namespace")}
}

// namespaces lists namespaces. With --config-dir these are the namespaces of the objects in the folder. With a
// kubeconfig and without --server, they are those of the API server. In all other cases they are those of the connected
// proxies.
func namespaces(ctx context.Context, cmd *cobra.Command, _ []string) (all []string, err error) {
	in := selectedCluster(cmd)
	switch dir, server := stated(cmd, "config-dir"), stated(cmd, "server"); {
	case dir != "":
		events, _, err := files.Read(dir, "", func(string) {})
		for _, e := range events {
			all = append(all, e.ID.Namespace)
		}
		return all, err
	case server == "" && in.Given():
		return listed(ctx, in, "/api/v1/namespaces", func(m *metav1.ObjectMeta) string { return m.Name })
	}
	usual, _ := usualServer()
	t := target{controlPlane: controlPlane{server: stated(cmd, "server"), fallback: usual}}
	defer t.close()
	proxies, err := t.connected(ctx)
	for _, proxy := range proxies {
		all = append(all, proxy[strings.LastIndexByte(proxy, '.')+1:])
	}
	return all, err
}

// revisions lists the revisions of the control plane's Pods.
func revisions(ctx context.Context, cmd *cobra.Command, _ []string) ([]string, error) {
	in := selectedCluster(cmd)
	return listed(ctx, in, "/api/v1/namespaces/"+url.PathEscape(in.Namespace)+"/pods?labelSelector=app%3Distiod",
		func(m *metav1.ObjectMeta) string { return m.Labels["istio.io/rev"] })
}

// listed reads a list of objects from the API server, and returns the result of the function describe for each object.
func listed(ctx context.Context, flags *cluster.Flags, path string, describe func(*metav1.ObjectMeta) string) (all []string, err error) {
	if !flags.Given() {
		return nil, errNoKubeconfig
	}
	in, err := flags.Open()
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct{ Metadata metav1.ObjectMeta }
	}
	if err := in.API.Do(ctx, http.MethodGet, path, nil, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		all = append(all, describe(&list.Items[i].Metadata))
	}
	return all, nil
}

// errNoKubeconfig means that neither a flag nor the environment names a kubeconfig, and that no file is at the
// default path.
var errNoKubeconfig = errors.New("no kubeconfig is found (--kubeconfig)")

// nameOf returns the name of an object.
func nameOf(m *metav1.ObjectMeta) string { return m.Name }

// completeObject completes an object in the form KIND NAME or KIND/NAME. It offers kinds, and after a kind the names of
// its objects.
func (w *waiter) completeObject(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return offer(func(ctx context.Context, cmd *cobra.Command, args []string) (all []string, err error) {
		kind, _, joined := strings.Cut(begun, "/")
		switch {
		case len(args) > 1 || len(args) == 1 && strings.Contains(args[0], "/"):
			return nil, nil
		case len(args) == 0 && !joined:
			for _, k := range kindNames {
				if lower := strings.ToLower(k.kind); begun == strings.ToLower(begun) {
					all = append(all, lower)
				} else {
					all = append(all, k.kind)
				}
			}
			return all, nil
		case len(args) == 1:
			kind = args[0]
		}
		k, err := parseKind(kind)
		if err != nil {
			return nil, err
		}
		names, err := w.objectsOf(ctx, k)
		for i := range names {
			if joined {
				names[i] = kind + "/" + names[i]
			}
		}
		return names, err
	})(cmd, args, begun)
}

// objectsOf lists the names of objects of a kind. With a kubeconfig and without --server, it lists the API server's
// objects in the stated namespace or in "default". In all other cases it lists the objects that the control plane has
// read. Without a stated namespace, these are the objects of all namespaces, as NAME.NAMESPACE.
func (w *waiter) objectsOf(ctx context.Context, k kindName) (names []string, err error) {
	if w.inCluster() {
		in, err := w.cluster.Open()
		if err != nil {
			return nil, err
		}
		namespace := w.namespace
		if namespace == "" {
			namespace = corev1.NamespaceDefault
		}
		path, _, err := k.path(ctx, in, "", namespace, "")
		if err != nil {
			return nil, err
		}
		return listed(ctx, &w.cluster, strings.TrimSuffix(path, "/"), nameOf)
	}
	defer w.close()
	var objects []struct {
		Kind     string
		Metadata metav1.ObjectMeta
	}
	err = w.readFirst(ctx, "/debug/configz", &objects)
	for _, o := range objects {
		switch {
		case o.Kind != k.kind:
		case w.namespace == "":
			names = append(names, o.Metadata.Name+"."+o.Metadata.Namespace)
		case w.namespace == o.Metadata.Namespace:
			names = append(names, o.Metadata.Name)
		}
	}
	return names, err
}
