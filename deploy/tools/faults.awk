# Reads `go test -v` of the tests of faults, and prints for each how it ended, its time, and the sizes that it had (lines
# "size: ..."); of one that failed also what it says itself. The rest is in the log.
/^=== RUN / { name = $3; sizes = ""; said = "" }
/^ +[a-z0-9_]+_test\.go:[0-9]+: / {
	said = said substr($0, 1, 400) "\n"
	if (sub(/^.*: size: /, "")) sizes = sizes (sizes == "" ? "" : ", ") $0
}
/^--- (PASS|FAIL|SKIP): / {
	count[$2]++
	printf "%s %-36s %9s  %s\n", substr($2, 1, 4), $3, $4, sizes
	if ($2 == "FAIL:") printf "%s", said
	fflush()
}
/^(panic:|FAIL|ok )/ { print; fflush() }
END { printf "%d passed, %d failed, %d skipped\n", count["PASS:"], count["FAIL:"], count["SKIP:"] }
