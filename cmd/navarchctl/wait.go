package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
)

// waiter waits until proxies have acknowledged an object or a revision.
type waiter struct {
	controlPlane
	namespace  string
	revision   int64 // --revision: a revision of the store; 0: wait for an object
	generation int64 // --generation; 0: the generation at the API server
	condition  string
	timeout    time.Duration
	format     output
}

// awaited is the object or the revision of the store for which a command waits.
type awaited struct {
	kind            kindName
	namespace, name string
	generation      int64 // generation to deliver; 0: the generation that the leader has read
	revision        int64 // of the store; 0: the leader states it
	guessed         bool  // the namespace is the default, because none is stated
}

// String returns the object or the revision, for messages.
func (a awaited) String() string {
	if a.name == "" {
		return "revision " + strconv.FormatInt(a.revision, 10)
	}
	return a.object()
}

// object returns "KIND NAMESPACE/NAME", or "KIND NAME" without a namespace. For a revision it returns "".
func (a awaited) object() string {
	switch {
	case a.name == "":
		return ""
	case a.namespace == "":
		return a.kind.kind + " " + a.name
	}
	return a.kind.kind + " " + a.namespace + "/" + a.name
}

func waitCommand() *cobra.Command {
	w := waiter{controlPlane: controlPlane{everyRole: true}}
	cmd := &cobra.Command{
		Use:   "wait KIND NAME[.NAMESPACE] | KIND/NAME | --revision N",
		Short: "Wait until all proxies have acknowledged an object or a revision",
		Long: `Waits until every proxy that a change affects has acknowledged it. With a kubeconfig the object's generation is read
from the API server, so that a change which kubectl has just applied is not missed; without one it is the object as the leader has
read it of its folder.

If the wait fails, the message names the proxies, and why.`,
		Example: `  # After kubectl apply.
  navarchctl wait virtualservice reviews -n backend

  # At most 10 seconds, for a script.
  navarchctl wait VirtualService/reviews.backend --timeout 10s || echo not delivered

  # Everything up to a revision of the store, as navarchctl ps shows it.
  navarchctl wait --revision 1`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			defer w.close()
			on, err := w.parse(args)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), w.timeout)
			defer cancel()
			if on.name != "" && on.generation == 0 {
				if on.generation, err = w.read(ctx, on); err != nil {
					return err
				}
			}
			return w.wait(ctx, cmd, on)
		},
	}
	w.bind(cmd)
	cmd.Flags().StringVarP(&w.namespace, "namespace", "n", "", "Namespace of a NAME without one (default: default).")
	cmd.Flags().Int64Var(&w.revision, "revision", 0, "Revision of the store, in place of an object.")
	cmd.Flags().Int64Var(&w.generation, "generation", 0, "Generation of the object (default: that at the API server).")
	cmd.ValidArgsFunction = w.completeObject
	return cmd
}

// bind adds the flags that wait and apply share.
func (w *waiter) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.server, "server", "", "Address of "+debugPages+" of the leader, or several processes with commas between them"+
		" (default: the processes that the kubeconfig leads to; without a kubeconfig "+defaultServer+").")
	w.fallback, _ = usualServer()
	w.cluster.BindCluster(f)
	f.StringVar(&w.cluster.Revision, "control-plane-revision", "",
		"Revision of the control plane: the label istio.io/rev of its Pods (default: all).")
	f.DurationVar(&w.timeout, "timeout", 30*time.Second, "The longest time to wait.")
	w.condition = "delivered"
	f.Var(&choice{&w.condition, "condition", []string{"delivered", "distribution"}}, "for",
		"Condition: delivered (istioctl calls it distribution).")
	w.format.bindRows(cmd)
}

// parse returns the object or revision that arguments and flags name. Errors name the argument or flag.
func (w *waiter) parse(args []string) (on awaited, err error) {
	if len(args) == 0 {
		if w.revision <= 0 {
			return on, errors.New("want KIND NAME, or --revision")
		}
		return awaited{revision: w.revision}, nil
	}
	if w.revision != 0 {
		return on, errors.New("--revision excludes KIND and NAME")
	}
	kind, name, joined := strings.Cut(args[0], "/")
	if joined == (len(args) == 2) {
		return on, errors.New("want KIND NAME, or KIND/NAME")
	}
	if len(args) == 2 {
		name = args[1]
	}
	if on.kind, err = parseKind(kind); err != nil {
		return on, err
	}
	on.name, on.namespace, on.generation = name, w.namespace, w.generation
	if slash := strings.IndexByte(name, '/'); slash >= 0 {
		on.namespace, on.name = name[:slash], name[slash+1:]
	} else if dot := strings.LastIndexByte(name, '.'); dot > 0 && w.namespace == "" {
		on.name, on.namespace = name[:dot], name[dot+1:]
	}
	on.guessed, on.namespace = on.namespace == "", cmp.Or(on.namespace, corev1.NamespaceDefault)
	if on.name == "" {
		return on, errors.New("the object has no name")
	}
	return on, nil
}

// read returns the object's generation at the API server. It returns 0 without a kubeconfig, or with --server.
func (w *waiter) read(ctx context.Context, on awaited) (int64, error) {
	if !w.inCluster() {
		return 0, nil
	}
	in, err := w.cluster.Open()
	if err != nil {
		return 0, err
	}
	path, _, err := on.kind.path(ctx, in, "", on.namespace, on.name)
	if err != nil {
		return 0, err
	}
	var found struct{ Metadata struct{ Generation int64 } }
	if err := in.API.Do(ctx, http.MethodGet, path, nil, &found); err != nil {
		return 0, fmt.Errorf("%s: %w", on, err)
	}
	return found.Metadata.Generation, nil
}

// Times of a wait. One request to the replicas lasts at most longestPoll. One request to the leader lasts at most
// pollOfLeader, because it may hang while another process becomes the leader. betweenAsks is the pause between two
// requests.
const (
	longestPoll  = 20 * time.Second
	pollOfLeader = 3 * time.Second
	betweenAsks  = 250 * time.Millisecond
)

// wait waits until all affected proxies have acknowledged, or ctx ends, and prints the result. Errors: no process
// answers, the leader has not stored the object in time, not all proxies have acknowledged, a proxy refuses the change,
// the object has errors, or its errors cannot be read.
func (w *waiter) wait(ctx context.Context, cmd *cobra.Command, on awaited) error {
	var problems []string
	if on.revision == 0 {
		stored, err := w.stored(ctx, on)
		if err != nil {
			return err
		}
		on.revision, problems = stored.Revision, stored.Problems
	}
	answer, err := w.delivered(ctx, on)
	if err != nil {
		return err
	}
	found, unread := w.errorsOf(ctx, on)
	if problems = append(problems, found...); len(problems) > 1 {
		slices.Sort(problems)
		problems = slices.Compact(problems) // the leader's errors are in both lists
	}
	if err := w.print(cmd, on, answer, problems); err != nil {
		return err
	}
	if on.name != "" && on.kind.kind == "Secret" {
		fmt.Fprintln(cmd.ErrOrStderr(), secretNote)
	}
	d := &answer.Items[0]
	switch {
	case !d.Done:
		return fmt.Errorf("%s is not delivered after %v", on, w.timeout)
	case on.name != "" && refused(d) && !blames(d, on):
		return fmt.Errorf("proxies refuse a change of which %s is a part", on)
	case refused(d):
		return fmt.Errorf("%s is refused by proxies", on)
	case unread != nil && len(problems) == 0:
		return fmt.Errorf("%s is delivered; whether it has errors is not known: %w", on, unread)
	case len(problems) > 0:
		return fmt.Errorf("%s has errors: %s", on, show.Printable(strings.Join(problems, "; ")))
	}
	return nil
}

// print prints the result of a wait. The argument answer must have one item.
func (w *waiter) print(cmd *cobra.Command, on awaited, answer fleetapi.Answer[fleetapi.Delivery], problems []string) error {
	r := rows{value: answer, names: []string{objectName(on.object())}, next: nextIs("which proxies are in sync", "proxy-status"),
		table: func(out io.Writer, _ bool) error { return printDelivery(out, on, answer, w.unreached(), problems) }}
	for _, p := range slices.Concat(answer.Items[0].Refusing, answer.Items[0].Pending) {
		r.next = nextIs("what this proxy has", "proxy-status", p.Proxy)
		break
	}
	return w.format.write(cmd, r)
}

// stored asks the leader for the store's revision that contains an object. It asks until the leader has stored the
// awaited generation, or until ctx ends. The error is errSeveral, or says why there is no revision yet. If no namespace
// is stated and another namespace has the object, stored fails before ctx ends.
func (w *waiter) stored(ctx context.Context, on awaited) (s fleetapi.Stored, err error) {
	q := url.Values{"kind": {on.kind.kind}, "group": {on.kind.group}, "namespace": {on.namespace}, "name": {on.name},
		"generation": {strconv.FormatInt(on.generation, 10)}}
	for {
		wait := min(poll(ctx), pollOfLeader)
		q.Set("wait", wait.String())
		asking, cancel := beyond(ctx, wait+betweenAsks+time.Second)
		s, err = w.leaders(asking, fleetapi.Root+"stored?"+q.Encode())
		cancel()
		switch {
		case err == nil && s.Revision > 0:
			return s, nil
		case err == nil && !s.Read:
			err = fmt.Errorf("%w %s", errUnread, on)
			if on.guessed { // a mistake rather than an object that is still to come
				if other := w.elsewhere(ctx, on); other != "" {
					return s, fmt.Errorf("%w; %s", err, other)
				}
			}
		case err == nil && s.Unsealed:
			err = fmt.Errorf("the leader has read %s and has not sealed its private key; the previous version stays in effect", on)
			if len(s.Problems) > 0 {
				err = fmt.Errorf("%w: %s", err, show.Printable(strings.Join(s.Problems, "; ")))
			}
		case err == nil:
			err = fmt.Errorf("the leader has not stored generation %d of %s; it has read generation %d", on.generation, on, s.Generation)
		case errors.Is(err, errSeveral):
			return s, err
		}
		if w.again(ctx) != nil {
			if errors.Is(err, errUnread) && ctx.Err() != context.Canceled {
				err = fmt.Errorf("%w; %s", err, cmp.Or(w.elsewhere(ctx, on), "navarchctl problems lists what is not valid"))
			}
			return s, fmt.Errorf("after %v: %w", w.timeout, err)
		}
	}
}

var (
	errSeveral = errors.New("there are several control planes: choose one with --control-plane-revision")
	errUnread  = errors.New("the leader has not read")
	errLeader  = errors.New("no process that answered is the leader: give several addresses with --server (see navarchctl leader)")
)

// leaders sends a request to all processes concurrently, and returns the leader's answer. Processes that do not lead
// answer at once. If two processes lead, the error is errSeveral. If no process leads, the error is the last failure of
// a process, or errLeader if all processes answered.
func (w *waiter) leaders(ctx context.Context, path string) (s fleetapi.Stored, err error) {
	pages, err := w.pages(ctx)
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		answer fleetapi.Answer[fleetapi.Stored]
		err    error
	}
	results := make(chan result, len(pages))
	for _, p := range pages {
		go func() {
			var r result
			r.err = p.read(ctx, path, &r.answer)
			results <- r
		}()
	}
	err = errLeader
	var late <-chan time.Time // nil until a leader has answered
	for waits := len(pages); waits > 0; waits-- {
		select {
		case r := <-results:
			if r.err != nil {
				err = r.err
			}
			for _, item := range r.answer.Items {
				if item.Leads && s.Leads {
					return s, errSeveral
				}
				if item.Leads {
					s = item
				}
			}
		case <-late:
			waits = 1
		}
		if s.Leads && late == nil {
			late = time.After(betweenAsks) // the leader of another control plane may answer, too
		}
	}
	if s.Leads {
		return s, nil
	}
	return s, err
}

// delivered requests the state of the delivery from any replica, until all proxies have acknowledged or ctx ends. It
// returns the last answer, and fails only if there was no answer. If a replica goes away during a request, the next
// request goes to another replica, because the proxies of the lost replica connect to the other replicas.
func (w *waiter) delivered(ctx context.Context, on awaited) (last fleetapi.Answer[fleetapi.Delivery], err error) {
	q := url.Values{"revision": {strconv.FormatInt(on.revision, 10)}}
	if object := on.object(); object != "" {
		q.Set("object", object)
	}
	for {
		q.Set("wait", poll(ctx).String())
		asking, cancel := beyond(ctx, poll(ctx)+5*time.Second)
		answer, asked := askAny[fleetapi.Delivery](asking, &w.controlPlane, "deliveries", q)
		cancel()
		if asked == nil && len(answer.Items) == 1 {
			if last = answer; last.Items[0].Done {
				return last, nil
			}
		} else if asked != nil {
			err = asked
		}
		if ended := w.again(ctx); ended != nil {
			if len(last.Items) == 1 {
				return last, nil
			}
			return last, fmt.Errorf("after %v: %w", w.timeout, cmp.Or(err, ended))
		}
	}
}

// beyond returns a context that lasts d, for one request of a wait. The context outlives the deadline of ctx, because
// the last answer names the proxies that have not acknowledged. It ends when ctx is cancelled. The caller must call the
// returned function after the request.
func beyond(ctx context.Context, d time.Duration) (context.Context, func()) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	return asking, func() { stop(); cancel() }
}

// again pauses between two requests. Without --server, the next request looks up the processes again, because Pods may
// have come or gone. The error is that of ctx.
func (w *waiter) again(ctx context.Context) error {
	if w.server == "" {
		w.close()
		w.found, w.pods, w.missing = nil, nil, nil
	}
	select {
	case <-time.After(betweenAsks):
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poll returns the time that one request may wait: longestPoll, or less if the deadline of ctx is earlier.
func poll(ctx context.Context) time.Duration {
	left := longestPoll
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	return max(left, 0).Round(time.Millisecond)
}
