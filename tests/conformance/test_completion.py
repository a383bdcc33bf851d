"""The completion of a shell knows the disks that run, and the words that an option takes."""
import os
import shutil

from bed import Skip, test


def folder(bed):
    """`forebay` in PATH, and a folder of control sockets with one disk called `erp`."""
    os.mkdir(bed.path("bin"))
    with open(bed.path("bin/forebay"), "w") as f:
        f.write('#!/bin/sh\ncase "$*" in "disk list") echo "erp  16 MiB  write-through  mem:16MiB"; '
                'echo "db-1.x  NOT SERVED  file:/x  it is an image:"; echo "  qemu-nbd x"; echo "?  NO ANSWER  x";; '
                '*) exec "%s" "$@";; esac\n' % bed.program)
    os.chmod(bed.path("bin/forebay"), 0o755)
    with open(bed.path("script"), "w") as f:
        f.write("")
    return dict(os.environ, PATH=bed.path("bin") + ":" + os.environ["PATH"])


def completed(bed, environment, line):
    """What bash offers at the end of a line."""
    words = line.split(" ")
    script = ('source <(forebay completion bash)\nCOMP_WORDS=(%s)\nCOMP_CWORD=%d\nCOMP_LINE="%s"\nCOMP_POINT=%d\n'
              '$(complete -p forebay | sed "s/.*-F \\([^ ]*\\).*/\\1/") forebay "${COMP_WORDS[COMP_CWORD]}" '
              '"${COMP_WORDS[COMP_CWORD-1]}"\necho "${COMPREPLY[@]}"\n'
              % (" ".join('"%s"' % word for word in words), len(words) - 1, line, len(line)))
    return bed.run(["bash", "-c", script], env=environment).split()


@test(forebay_only=True)
def bash_completes_the_names_of_disks_and_the_words_of_options(bed):
    environment = folder(bed)
    for line, expected in [("forebay stats ", ["erp", "db-1.x"]), ("forebay disk show e", ["erp"]),
                           ("forebay disk set db", ["db-1.x"]), ("forebay events --json ", ["erp", "db-1.x"]),
                           ("forebay trace record ", ["erp", "db-1.x"]), ("forebay disk sho", ["show"]),
                           ("forebay disk show --js", ["--json"]), ("forebay run --policy s", ["s3fifo"]),
                           ("forebay disk set db-1.x --mode write-o", ["write-only"]),
                           ("forebay trace convert a b --to fio", ["fio2", "fio3"])]:
        assert completed(bed, environment, line) == expected, line
    assert "erp" not in completed(bed, environment, "forebay stats --control ")
    assert "erp" not in completed(bed, environment, "forebay run ")


@test(forebay_only=True)
def zsh_completes_the_names_of_disks(bed):
    if not shutil.which("zsh"):
        raise Skip("zsh is not installed")
    environment = folder(bed)
    script = ('autoload -U compinit; compinit -u -D; source <(forebay completion zsh)\n'
              'compadd() { shift; print -l ${(P)1} }\n_forebay_disk\n')
    assert bed.run(["zsh", "-f", "-c", script], env=environment).split() == ["erp", "db-1.x"]
    said = bed.run([bed.program, "completion", "zsh"])
    assert "disk -- The disk:_forebay_disk'" in said and said.count("_forebay_disk'") > 10, said[:200]


@test(forebay_only=True)
def fish_completes_the_names_of_disks(bed):
    if not shutil.which("fish"):
        raise Skip("fish is not installed")
    environment = dict(folder(bed), HOME=bed.directory)
    for line, expected in [("forebay stats ", ["db-1.x", "erp"]), ("forebay disk show e", ["erp"]), ("forebay disk ", [])]:
        script = 'forebay completion fish | source; complete -C "%s" | string replace -r "\\t.*" ""; true' % line
        offered = bed.run(["fish", "-N", "-c", script], env=environment).split()
        assert [word for word in offered if word in ["erp", "db-1.x"]] == expected, offered
