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

// adopt returns the command "store adopt". While no ingester leads, the command makes replicas serve the stored
// records, for example after records in etcd were changed on purpose. For that, it writes a head (the summary of the
// stored records) that describes them.
func (e *etcd) adopt() *cobra.Command {
	var yes bool
	var reason, over string
	cmd := &cobra.Command{Use: "adopt", Short: "Make replicas serve the stored records while no ingester leads", Args: cobra.NoArgs,
		Example: "  navarchctl store adopt --etcd-endpoints https://etcd-0:2379 --etcd-ca ca.crt --etcd-cert tls.crt --etcd-key tls.key\n  navarchctl store adopt --yes --etcd-endpoints https://etcd-0:2379 --etcd-ca ca.crt --etcd-cert tls.crt --etcd-key tls.key",
		Long: "The head in etcd has a number and a digest of the stored records of each kind. If anybody but the leader changes records,\n" +
			"replicas serve the last good records of the kinds that differ from the head. A leader corrects the stored records by itself.\n" +
			"Without a leader this command shows the kinds that differ. With --yes it writes a head that describes the stored records, and\n" +
			"replicas serve them.\n" +
			"After a restore of etcd from a backup, replicas keep their configuration until a leader has written. If no leader is to write, or\n" +
			"the alarm does not end, add --over with the place that the alarm names: replicas then serve the stored records, even if no kind\n" +
			"differs. This command stands for election, so it fails while an ingester leads. Its etcd user needs the role " +
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
		"The newest place that replicas have read (CHAIN.TERM.BATCH), from their alarm. The new head gets a later place.")
	cmd.Flags().StringVar(&reason, "reason", "", "Why the records are adopted, at most 256 characters. This command shows the reason later.")
	cmd.Flags().BoolVar(&yes, "yes", false, "Write the head. Without --yes this command shows what differs and writes nothing.")
	return cmd
}

// errLed means that an ingester leads.
var errLed = errors.New("an ingester leads: it corrects the stored records by itself, also after a restore. To adopt them all the" +
	" same, stop the ingesters first")

// adoption contains the flags of "store adopt".
type adoption struct {
	yes  bool     // write the head; false: only print the differences
	over kv.Place // position that the new head must follow; zero: position of the stored head
	who  record   // author and reason
}

// record describes one adoption of the stored records. Its names and reason are not verified.
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

// recordPath is the path in etcd of the record of the newest adoption.
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

// write stores the record, in a transaction that fails once the epoch (the term of a leader) has ended.
func (r record) write(ctx context.Context, store *kv.Store, epoch kv.Epoch) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = store.ChangeFenced(ctx, epoch, kv.BlobChange{Put: []kv.Blob{{Path: recordPath, Raw: raw}}})
	return err
}

// lastRecord returns the record of the newest adoption, even if the head was not written. The second result is false if
// there is no record, or if the record cannot be decoded. The error is etcd's.
func lastRecord(ctx context.Context, store *kv.Store) (r record, is bool, err error) {
	blobs, _, err := store.Blobs(ctx, recordFolder, 0)
	for _, blob := range blobs {
		if blob.Path == recordPath && json.Unmarshal(blob.Raw, &r) == nil {
			is = true
		}
	}
	return r, is, err
}

// String describes the adoption in one line. Its texts are made printable.
func (r record) String() string {
	return fmt.Sprintf("last adoption, at %s: %d records, by %s on %s (unverified), etcd user %q, reason %q",
		r.At.Format(time.RFC3339), r.Records,
		show.Printable(r.OSUser), show.Printable(r.Host), show.Printable(r.EtcdUser), show.Printable(r.Reason))
}

// place returns the position of the new head. The argument stored is the position of the stored head.
func (a adoption) place(stored kv.Place, now time.Time) kv.Place {
	if a.over.Known() {
		return a.over.Next(stored, now)
	}
	return stored.Next(kv.Place{}, now)
}

// adoptStored prints the differences, and adopts the stored records if the operator confirmed (--yes). Errors: errLed,
// errNotElected, an error of asStored, records that changed since they were printed, or an error of etcd or of the
// output.
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
		_, err = fmt.Fprintf(w, "the stored records (%d) match the head, which was written at %v\n",
			len(state.Values), state.Head.Time.UTC().Format(time.RFC3339))
	default:
		_, err = fmt.Fprintln(w, "the stored records match the head: there is nothing to adopt")
		a.yes = false
	}
	if last, is, _ := lastRecord(ctx, store); err == nil && is { // a record that cannot be read is omitted
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
	_, err = fmt.Fprintf(w, "adopted: the head at revision %d describes the stored records, and replicas serve them\n", head.Revision)
	return err
}

// writeAdopted writes a head for the stored records, unless they differ from the records that the operator was shown.
// It writes the record of the adoption before the head, and again, with Done, after the head. If the last of these
// writes fails, writeAdopted returns an error although the head is written.
func writeAdopted(ctx context.Context, store *kv.Store, epoch kv.Epoch, shown *kv.State, a adoption) (kv.Head, error) {
	now, err := asStored(ctx, store)
	if err == nil && len(now.Contents.Differ(shown.Contents)) > 0 {
		err = errors.New("the stored records have changed in the meantime: run the command again without --yes")
	}
	if err != nil {
		return kv.Head{}, err
	}
	r := a.who
	r.At, r.Records, r.Kinds = time.Now().UTC(), len(now.Values), map[string]int{}
	for _, kind := range shown.Contents.Differ(shown.Said) {
		if _, known := model.ParseKind(kind); known { // anybody may have chosen the name of another kind
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

// errNotElected means that this command was not elected before its time limit.
var errNotElected = errors.New("this command was not elected in time: an ingester leads by now, or the etcd user lacks the role " +
	string(kv.RoleIngest))

// nobodyLeads returns an error that matches errLed if an ingester leads, or an error of etcd.
func nobodyLeads(ctx context.Context, elector *lead.Elector) error {
	leader, epoch, err := elector.Leader(ctx)
	if err == nil && epoch.Key != "" {
		err = fmt.Errorf("%w (%s)", errLed, show.Printable(leader))
	}
	return err
}

// asStored reads the stored records, without comparing them with the head. Errors: the head is missing, incomplete or
// not decodable, or etcd fails.
func asStored(ctx context.Context, store *kv.Store) (*kv.State, error) {
	stat, err := store.Stat(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case stat.Head.Err != nil:
		return nil, fmt.Errorf("%w: start an ingester, which compares all records", stat.Head.Err)
	case stat.Head.Revision == 0:
		return nil, errors.New("there is no head to compare the stored records with: start an ingester")
	case !stat.Head.Complete:
		return nil, errors.New("an ingester was lost in the middle of a batch: start one, which completes it")
	}
	return store.Load(ctx, stat.Revision)
}

// writeDiffering prints a row for each of the given kinds. If this build does not know the digest algorithm of the
// head, it prints a row for each stored kind instead.
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
