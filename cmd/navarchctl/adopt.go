package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead"
	"navarch.io/navarch/store/model"
)

// adopt returns the command for records that were changed on purpose, or that no leader will correct because none
// exists.
func (e *etcd) adopt() *cobra.Command {
	var yes bool
	var reason, over string
	cmd := &cobra.Command{Use: "adopt", Short: "Declare the stored records to be right, where no ingester leads", Args: cobra.NoArgs,
		Example: "  navarchctl store adopt --etcd-endpoints https://etcd-0:2379 --etcd-ca ca.crt --etcd-cert tls.crt --etcd-key tls.key\n  navarchctl store adopt --yes --etcd-endpoints https://etcd-0:2379 --etcd-ca ca.crt --etcd-cert tls.crt --etcd-key tls.key",
		Long: "The head in etcd says what the records beside it are. Where somebody else than the leader changed records, replicas hold the\n" +
			"kinds that differ: they serve the last good ones. A leader puts the records right by itself. Where there is none, this command\n" +
			"shows what differs, and with --yes writes a head that says what is stored: replicas then serve that.\n" +
			"After a restore of etcd from a backup replicas go on with what they have until a leader has written. Where none is to, or the alarm\n" +
			"does not end, --over with what the alarm names makes them serve what is stored, whether anything differs or not.\n" +
			"It stands for election meanwhile, so it is refused where an ingester leads, and its etcd user needs the role " +
			string(kv.RoleIngest) + ".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var place kv.Place
			if over != "" {
				var err error
				if place, err = kv.ParsePlace(over); err != nil {
					return fmt.Errorf("--over: %w", err)
				}
			}
			return e.with(cmd.Context(), 30*time.Second, func(ctx context.Context, store *kv.Store) error {
				return adoptStored(ctx, store, cmd.OutOrStdout(), adoption{yes, place, e.author(reason)})
			})
		}}
	cmd.Flags().StringVar(&over, "over", "",
		"The newest place that replicas have read, as their alarm names it (CHAIN.TERM.BATCH): what is stored counts as newer.")
	cmd.Flags().StringVar(&reason, "reason", "", "Why, for the record, which this command shows later; at most 256 bytes.")
	cmd.Flags().BoolVar(&yes, "yes", false, "Write the head. Without it this command shows what differs and writes nothing.")
	return cmd
}

// errLed: somebody leads.
var errLed = errors.New("an ingester leads: it puts the stored records right by itself, also after a restore. Stop the ingesters" +
	" first if you mean it")

// adoption is the operator's request.
type adoption struct {
	yes  bool
	over kv.Place // position that the new head must follow; zero: that of the stored records
	who  record
}

// record states who adopted the stored records, and when. Names and reason are unverified claims of this command.
type record struct {
	Reason   string         `json:"reason,omitempty"`
	OSUser   string         `json:"claimed_os_user,omitempty"`
	Host     string         `json:"claimed_host,omitempty"`
	EtcdUser string         `json:"claimed_etcd_user,omitempty"`
	At       time.Time      `json:"at"`
	Records  int            `json:"records"`
	Kinds    map[string]int `json:"kinds"` // number of records of each kind that differed
	Done     bool           `json:"done"`  // the head was written
}

// recordPath is the path of the newest record.
const (
	recordFolder = "removals/"
	recordPath   = recordFolder + "adopted"
)

// author describes the user who runs this command.
func (e *etcd) author(reason string) record {
	r := record{Reason: fmt.Sprintf("%.256s", reason), EtcdUser: e.User}
	if u, err := user.Current(); err == nil {
		r.OSUser = u.Username
	}
	r.Host, _ = os.Hostname() // it may be empty
	return r
}

// write stores the record under the fence of an epoch.
func (r record) write(ctx context.Context, store *kv.Store, epoch kv.Epoch) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = store.ChangeFenced(ctx, epoch, kv.BlobChange{Put: []kv.Blob{{Path: recordPath, Raw: raw}}})
	return err
}

// lastRecord returns the newest record; false: nothing was adopted yet.
func lastRecord(ctx context.Context, store *kv.Store) (r record, is bool, err error) {
	blobs, _, err := store.Blobs(ctx, recordFolder, 0)
	for _, blob := range blobs {
		if blob.Path == recordPath && json.Unmarshal(blob.Raw, &r) == nil {
			is = true
		}
	}
	return r, is, err
}

func (r record) String() string {
	return fmt.Sprintf("adopted last at %s: %d records, by %s on %s (as navarchctl said), etcd user %q, reason %q",
		r.At.Format(time.RFC3339), r.Records,
		show.Printable(r.OSUser), show.Printable(r.Host), show.Printable(r.EtcdUser), show.Printable(r.Reason))
}

// place returns the position of the new head.
func (a adoption) place(stored kv.Place, now time.Time) kv.Place {
	if a.over.Known() {
		return a.over.Next(stored, now)
	}
	return stored.Next(kv.Place{}, now)
}

// adoptStored prints the differences, and adopts the stored records if the operator confirmed.
func adoptStored(ctx context.Context, store *kv.Store, w io.Writer, a adoption) error {
	state, err := asStored(ctx, store)
	if err != nil {
		return err
	}
	kinds := state.Contents.Differ(state.Said)
	switch {
	case !state.Said.Known() || len(kinds) > 0:
		err = writeDiffering(w, state, kinds)
	case a.over.Known():
		_, err = fmt.Fprintf(w, "the stored records (%d) are what the head says, of %v\n",
			len(state.Values), state.Head.Time.UTC().Format(time.RFC3339))
	default:
		_, err = fmt.Fprintln(w, "the stored records are what the head says: there is nothing to adopt")
		a.yes = false
	}
	if last, is, _ := lastRecord(ctx, store); err == nil && is { // without the permission to read it, it is omitted
		_, err = fmt.Fprintln(w, last)
	}
	if err != nil || !a.yes {
		return err
	}
	elector, err := lead.New(lead.Config{Store: store, Name: electionName, Logger: discard})
	if err != nil {
		return err
	}
	if err := nobodyLeads(ctx, elector); err != nil {
		return err
	}
	running, done := context.WithCancel(ctx)
	defer done()
	var head kv.Head
	failed := errNotElected
	_ = elector.Run(running, func(ctx context.Context, epoch kv.Epoch) error {
		defer done()
		head, failed = writeAdopted(ctx, store, epoch, state, a)
		return failed
	})
	if failed != nil {
		return failed
	}
	_, err = fmt.Fprintf(w, "adopted: the head at revision %d says what is stored, replicas serve that\n", head.Revision)
	return err
}

// writeAdopted writes a head for the printed records, if they are still stored. It writes the record before and after.
func writeAdopted(ctx context.Context, store *kv.Store, epoch kv.Epoch, shown *kv.State, a adoption) (kv.Head, error) {
	now, err := asStored(ctx, store)
	if err == nil && len(now.Contents.Differ(shown.Contents)) > 0 {
		err = errors.New("the stored records have changed in the meantime: look at them again")
	}
	if err != nil {
		return kv.Head{}, err
	}
	r := a.who
	r.At, r.Records, r.Kinds = time.Now().UTC(), len(now.Values), map[string]int{}
	for _, kind := range shown.Contents.Differ(shown.Said) {
		if _, known := model.ParseKind(kind); known { // names of other kinds may have any author
			r.Kinds[kind] = int(now.Contents.Kind(kind).Count)
		}
	}
	if err := r.write(ctx, store, epoch); err != nil {
		return kv.Head{}, err
	}
	head, err := store.Commit(ctx, kv.Batch{Epoch: epoch, Place: a.place(shown.Head.Place, time.Now()),
		After: shown.Head.Revision, Stored: now.Contents})
	if err != nil {
		return head, err
	}
	r.Done = true
	return head, r.write(ctx, store, epoch)
}

// electionName is the name of this command in an election.
const electionName = "navarchctl store adopt"

// errNotElected: the elector gives no reason.
var errNotElected = errors.New("this command was not elected in time: an ingester leads by now, or the etcd user lacks the role " +
	string(kv.RoleIngest))

func nobodyLeads(ctx context.Context, elector *lead.Elector) error {
	leader, epoch, err := elector.Leader(ctx)
	if err == nil && epoch.Key != "" {
		err = fmt.Errorf("%w (%s)", errLed, show.Printable(leader))
	}
	return err
}

// asStored reads the stored records, without comparing them with the head.
func asStored(ctx context.Context, store *kv.Store) (*kv.State, error) {
	stat, err := store.Stat(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case stat.Head.Err != nil:
		return nil, fmt.Errorf("%w: start an ingester, which compares everything", stat.Head.Err)
	case stat.Head.Revision == 0:
		return nil, errors.New("there is no head, so nobody can tell what should be stored: start an ingester")
	case !stat.Head.Complete:
		return nil, errors.New("an ingester was lost in the middle of a batch: start one, which completes it")
	}
	return store.Load(ctx, stat.Revision)
}

// writeDiffering prints the differing kinds; all kinds if this build cannot read the head.
func writeDiffering(w io.Writer, state *kv.State, kinds []string) error {
	said := func(kind string) string { return fmt.Sprint(state.Said.Kind(kind).Count) }
	if !state.Said.Known() {
		kinds, said = state.Contents.Kinds(), func(string) string { return "not known" }
	}
	rows := [][]string{{"KIND", "HEAD SAYS", "STORED", "DIFFERS"}}
	for _, kind := range kinds {
		differs := "values"
		if state.Said.Kind(kind).Count != state.Contents.Kind(kind).Count {
			differs = "number"
		}
		if !state.Said.Known() {
			differs = "not known"
		}
		rows = append(rows, []string{show.Printable(kind), said(kind), fmt.Sprint(state.Contents.Kind(kind).Count), differs})
	}
	return show.Table(w, rows)
}
