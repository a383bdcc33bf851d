# Builds a package; boots again, and builds it again.
set -e
cd /usr/src
if [ ! -e /opt/job/again ]; then
    touch /opt/job/again
    next=reboot
    dpkg-source -x hello_*.dsc
    cd hello-*/
    ./configure --quiet --disable-nls
else
    cd hello-*/
    make clean
fi
make -j 2
make check
make install
