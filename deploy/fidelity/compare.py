#!/usr/bin/env python3
"""Says what of the differences from istiod is explained, and that all of it is.

    compare.py SHARED navarchctl

SHARED is a folder with the comparison's compare.py and its cases. Each difference that it does not count as harmless belongs to the first line of
differences.txt (beside this file) that matches it. Prints how many resources are equivalent by the comparison alone, and with the lines of one
class after the other. Status 1, with what is wrong, where a difference belongs to no line, or a line has other places than it says.
"""
import collections, glob, gzip, importlib.util, json, os, re, sys


def differences(compare, ctl):
    """Yields (path, (case, proxy, type, resource), identities) of each difference, and (None, .., '') for each resource that istiod sent."""
    for reference in sorted(glob.glob(compare.HERE + '/cases/*/*/reference.json.gz')):
        folder = os.path.dirname(reference)
        case = os.path.relpath(folder, compare.HERE + '/cases')
        for name, node in json.load(gzip.open(reference)).items():
            ours = compare.render(ctl, folder + '/objects.json', node['node'])
            for kind in ('clusters', 'endpoints', 'listeners', 'routes'):
                want, got = node['want'].get(kind, {}), ours.get(kind, {})
                for resource in sorted(set(want) | set(got)):
                    yield from of(compare, (case, name, kind, resource), want.get(resource), got.get(resource))


def of(compare, key, want, got):
    if want is not None:
        yield None, key, ''
    if want is None or got is None:
        yield ' EXTRA' if want is None else ' MISSING', key, changed(want, got)
        return
    found = []
    compare.diff('', compare.clean(want), compare.clean(got), found)
    for path, a, b in found:
        if not compare.benign(key[2], key[3], path, (a, b)):
            name = re.search(IDENTIFIES.pattern + r'(?=[.\[]|$)', path)
            yield path, key, changed(a, b, name is not None)


# Fields whose texts identify a peer: names in its certificate, principals of RBAC.
IDENTIFIES = re.compile('(match_subject_alt_names|match_typed_subject_alt_names|principals|principal_name|and_ids|or_ids|not_id)')


def changed(want, got, within=False):
    """The identities that are in one value alone, such as "-exact spiffe://a +prefix spiffe://b/"; empty: none is."""
    a, b = set(identities(want, within)), set(identities(got, within))
    return ' '.join(['-' + one for one in sorted(a - b)] + ['+' + one for one in sorted(b - a)])


def identities(value, within, kind=''):
    """Yields the matcher and the text of each identity; the value is, or is not, within a field that identifies a peer."""
    if isinstance(value, str) and value[:1] in '{[' and within:  # an element of a set, as the comparison writes it
        try:
            value = json.loads(value)
        except ValueError:
            pass
    if isinstance(value, dict):
        for name, one in value.items():
            yield from identities(one, within or IDENTIFIES.fullmatch(name) is not None, name)
    elif isinstance(value, list):
        for one in value:
            yield from identities(one, within, kind)
    elif isinstance(value, str) and (within or 'spiffe://' in value):
        yield f'{kind} {value}'


def read(path):
    lines = [line.rstrip('\n').split('\t') for line in open(path) if line.strip() and not line.startswith('#')]
    return [(kind, int(places), *map(re.compile, split(pattern)), why) for kind, places, pattern, why in lines]


def split(pattern):
    """The expression of places, and that of all of the identities that differ there: none, where it says nothing of them."""
    places, _, named = pattern.partition(' => ')
    return places, named


def main(shared, ctl):
    sys.dont_write_bytecode = True  # SHARED stays as it is
    spec = importlib.util.spec_from_file_location('compare', os.path.join(shared, 'compare.py'))
    compare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compare)
    lines = read(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'differences.txt'))
    counted, wrong = collections.Counter(), []
    sent, differ = set(), collections.defaultdict(set)
    for path, key, identity in differences(compare, ctl):
        if path is None:
            sent.add(key)
            continue
        text = f'{key[0]} {key[2]} {key[3]}{path}'
        line = next((i for i, one in enumerate(lines) if one[2].search(text) and one[3].fullmatch(identity)), None)
        if line is None:
            wrong.append(f'nothing explains {text} => {identity}' if identity else f'nothing explains {text}')
        counted[line] += 1
        differ[key].add('unexplained' if line is None else lines[line][0])
    for i, (kind, places, pattern, _, _) in enumerate(lines):
        if counted[i] != places:
            wrong.append(f'{counted[i]} places, not {places}: {kind} {pattern.pattern}')
    kinds = set()
    for kind in ('equivalent', *dict.fromkeys(line[0] for line in lines)):
        kinds.add(kind)
        good = sum(1 for key in sent if differ[key] <= kinds)
        print(f'{kind:10} {100 * good / len(sent):5.1f} %  {good} of {len(sent)}')
    for one in wrong:
        print(one)
    return 1 if wrong else 0


if __name__ == '__main__':
    if len(sys.argv) != 3:
        print(__doc__)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
